"""Contracts made from Python types."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import gc
import os
import pickle
import subprocess
import sys
import uuid
import weakref
from collections.abc import Callable  # noqa: TC003  # pydantic reads it
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from promptkit import OutputContract, RunResult, Timing, Validation
from promptkit._values import contracts
from promptkit._values.contracts import compiled_contract
from promptkit._values.schemas import compile_schema
from promptkit._values.usage import UNKNOWN_USAGE
from promptkit.errors import InvalidConfigError


class Struct(msgspec.Struct):
    a: int
    b: list[str] = []


@dataclasses.dataclass
class Data:
    a: int
    b: list[str] = dataclasses.field(default_factory=list)


class Table(TypedDict):
    a: int
    b: list[str]


class Model(pydantic.BaseModel):
    a: int
    b: list[str] = []


class Unencodable(pydantic.BaseModel):
    call: Callable[[], None]


@pytest.mark.parametrize("kind", [Struct, Data, Table, Model])
def test_a_contract_of_a_type_accepts_its_values_and_no_others(kind: type[Any]) -> None:
    contract = OutputContract.of(kind, max_repairs=2)
    assert (contract.kind, contract.name, contract.max_repairs) == ("json_schema", kind.__name__, 2)
    schema = compile_schema(contract.schema).unwrap()
    assert schema.violations({"a": 1, "b": ["x"]}) == ()
    assert schema.violations({"a": "1", "b": []})
    assert schema.violations([])
    hash(contract)


def test_builtin_types_are_taken_and_a_name_that_no_backend_takes_is_left_out() -> None:
    assert OutputContract.of(list[int]).name == "list"
    assert OutputContract.of(int | str).name is None
    assert compile_schema(OutputContract.of(dict[str, int]).schema).unwrap().violations({"a": 1}) == ()


Item = TypeVar("Item")


class Box(msgspec.Struct, Generic[Item]):
    item: Item


@dataclasses.dataclass
class Tree:
    name: str
    below: list[Tree] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    left: int
    right: str


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


class Numbers(pydantic.RootModel[list[int]]):
    pass


class ModelTree(pydantic.BaseModel):
    below: list[ModelTree] = []


ANSWERS: list[tuple[Any, Any, Any]] = [
    (Struct, {"a": 1, "b": ["x"]}, Struct(a=1, b=["x"])),
    (Data, {"a": 1}, Data(a=1)),
    (Table, {"a": 1, "b": []}, {"a": 1, "b": []}),
    (Model, {"a": 1, "b": ["x"]}, Model(a=1, b=["x"])),
    (Numbers, [1, 2], Numbers([1, 2])),
    (ModelTree, {"below": [{}]}, ModelTree(below=[ModelTree()])),
    (Tree, {"name": "a", "below": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    (Box[int], {"item": 5}, Box(5)),
    (list[Struct], [{"a": 1}], [Struct(a=1)]),
    (dict[str, Data], {"k": {"a": 1}}, {"k": Data(a=1)}),
    (Circle | Square, {"type": "square", "side": 2}, Square(side=2.0)),
    (Struct | None, None, None),
    (Pair, [1, "x"], Pair(1, "x")),
    (Colour, "red", Colour.RED),
    (Literal["yes", "no"], "no", "no"),
    (tuple[int, str], [1, "x"], (1, "x")),
    (dt.date, "2026-11-30", dt.date(2026, 11, 30)),
    (Annotated[int, msgspec.Meta(ge=1)], 3, 3),
    (bool, True, True),
    (Any, {"free": [1]}, {"free": [1]}),
]


@pytest.mark.parametrize(("kind", "answer", "value"), ANSWERS, ids=[str(kind) for kind, _, _ in ANSWERS])
def test_an_answer_that_satisfies_the_contract_of_a_type_decodes_to_a_value_of_it(
    kind: Any, answer: Any, value: Any
) -> None:
    schema = OutputContract.of(kind).schema
    assert compile_schema(schema).unwrap().violations(answer) == ()
    assert result(answer).decode(kind) == value


def result(value: Any) -> RunResult:
    return RunResult(
        run_id="r",
        parent_run_id=None,
        prompt_id="p",
        profile="f",
        backend="b",
        model="m",
        response_id=None,
        session_id=None,
        definition_hash="sha256:0",
        rendered_hash="sha256:0",
        raw_output="",
        value=value,
        finish_reason="stop",
        refusal=None,
        validation=Validation(status="valid"),
        captured=False,
        attempts=1,
        transient_retries=0,
        repair_calls=0,
        usage=UNKNOWN_USAGE,
        timing=Timing(started_at=dt.datetime.now(dt.UTC), duration=0.0),
    )


STABLE = """
import enum, typing, msgspec, promptkit
class Kind(enum.Enum):
    Z, B, A = "z", "b", "a"
class Table(typing.TypedDict, total=False):
    z: typing.Required[int]
    m: typing.Required[typing.Literal["q", "w", 3, None]]
    a: typing.Required[str | int | None]
class Left(msgspec.Struct, tag="l"):
    kind: Kind
class Right(msgspec.Struct, tag="r"):
    table: Table
print([promptkit.OutputContract.of(kind) for kind in (Table, Left | Right, list[Right])])
"""


def test_a_contract_of_a_type_is_the_same_in_every_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", STABLE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2", "3")
    }
    assert len(said) == 1


def test_a_contract_of_a_type_cannot_be_changed() -> None:
    schema: Any = OutputContract.of(Struct).schema
    with pytest.raises(TypeError, match="immutable"):
        schema["$defs"]["Struct"]["properties"]["a"] = {}
    assert isinstance(schema["$defs"]["Struct"]["required"], tuple)
    assert pickle.loads(pickle.dumps(OutputContract.of(Struct))) == OutputContract.of(Struct)  # noqa: S301  # made here


class Unresolved(msgspec.Struct):
    a: Missing  # type: ignore[name-defined]  # noqa: F821  # is the fault


@dataclasses.dataclass
class UnresolvedData:
    a: list[Missing]  # type: ignore[name-defined]  # noqa: F821  # is the fault


class UnresolvedTable(TypedDict):
    a: Missing  # type: ignore[name-defined]  # noqa: F821  # is the fault


class UnresolvedModel(pydantic.BaseModel):
    a: Missing  # type: ignore[name-defined]  # noqa: F821  # is the fault


class Nested(msgspec.Struct):
    model: Model


class PythonPattern(pydantic.BaseModel):
    a: Annotated[str, pydantic.Field(json_schema_extra={"pattern": "("})]


class Unencoded(pydantic.BaseModel):
    a: Annotated[int, pydantic.Field(json_schema_extra={"examples": [object()]})]


class Raising:
    @staticmethod
    def model_json_schema() -> Any:
        raise KeyError


class Plain:
    pass


class Unspeakable(type):
    def __repr__(cls) -> str:
        msg = "has no text"
        raise ValueError(msg)


class Unnamed(metaclass=Unspeakable):
    pass


class Lists(msgspec.Struct):
    a: list[Plain]


def nested(depth: int) -> Any:
    kind: Any = int
    for _ in range(depth):
        kind = list[kind]
    return kind


class Changing:
    title = "first"

    @classmethod
    def model_json_schema(cls) -> Any:
        return {"title": cls.title}


class Odd:
    @staticmethod
    def model_json_schema() -> Any:
        return 5


UNUSABLE: list[Any] = [
    *(complex, object(), 5, type("Plain", (), {}), "Struct", Unencodable, Model(a=1), Struct(a=1)),
    *(Unresolved, UnresolvedData, UnresolvedTable, UnresolvedModel, list[Unresolved], Nested, list[Model]),
    *(PythonPattern, Unencoded, Raising, Odd, Data | Tree, list[int] | tuple[int]),
    *(Plain, Unnamed, list[Unnamed], Lists, 10**5000, nested(250), nested(5000)),
]


@pytest.mark.parametrize("kind", UNUSABLE, ids=map(str, range(len(UNUSABLE))))
def test_a_type_without_a_schema_is_a_fault_that_says_what_to_give(kind: Any) -> None:
    with pytest.raises(InvalidConfigError, match="has no JSON Schema") as caught:
        OutputContract.of(kind)
    (fault,) = caught.value.faults
    assert fault.key == "OutputContract.of"
    assert "give a msgspec struct" in fault.message
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "named"), [(Plain, "Plain"), (Lists, "Plain"), (complex, "complex")])
def test_a_class_that_says_nothing_of_itself_is_named_in_a_whole_sentence(kind: Any, named: str) -> None:
    with pytest.raises(InvalidConfigError, match="has no JSON Schema") as caught:
        OutputContract.of(kind)
    assert f"{named}'> does not say what it is made of: give a msgspec struct" in str(caught.value)


def test_a_class_whose_every_attribute_raises_is_a_fault_too() -> None:
    class Unruly(type):
        def __hash__(cls) -> int:
            raise ValueError

        def __getattribute__(cls, name: str) -> Any:
            raise ValueError

    class Wild(metaclass=Unruly):
        pass

    with pytest.raises(InvalidConfigError, match="Wild'> has no JSON Schema: ValueError: give"):
        OutputContract.of(Wild)


def test_a_contract_of_a_type_that_is_deep_says_so() -> None:
    with pytest.raises(InvalidConfigError, match="this GenericAlias has no JSON Schema: it is nested too deeply"):
        OutputContract.of(nested(5000))


def test_contracts_of_one_class_share_its_schema_and_its_validator() -> None:
    one, other = OutputContract.of(Struct), OutputContract.of(Struct, max_repairs=3)
    assert one.schema is other.schema
    assert compiled_contract(one).unwrap() is compiled_contract(other).unwrap()
    assert (one.max_repairs, other.max_repairs) == (0, 3)


def test_a_contract_of_a_model_is_what_the_model_says_now() -> None:
    asked = OutputContract.of(Changing).schema
    Changing.title = "second"
    assert (asked, OutputContract.of(Changing).schema) == ({"title": "first"}, {"title": "second"})


def test_what_unions_say_does_not_depend_on_those_made_before() -> None:
    assert OutputContract.of(int | Colour | None).schema != OutputContract.of(Colour | int | None).schema


def test_a_class_is_not_kept_for_the_contracts_that_were_made_of_it() -> None:
    kind = msgspec.defstruct("Passing", [("a", int)])
    contract = OutputContract.of(kind)
    passing = weakref.ref(kind)
    del kind
    gc.collect()
    assert passing() is None
    assert compiled_contract(contract).unwrap().violations({"a": "x"})


def test_a_contract_compiles_its_schema_once_and_a_copy_is_as_good() -> None:
    contract = OutputContract(kind="json_schema", schema={"type": "integer"})
    compiled = compiled_contract(contract).unwrap()
    assert compiled_contract(contract).unwrap() is compiled
    for again in (copy.copy(contract), copy.deepcopy(contract), pickle.loads(pickle.dumps(contract))):  # noqa: S301  # made here
        assert again == contract
        assert compiled_contract(again).unwrap().violations("x")
    other = msgspec.structs.replace(contract, schema={"type": "string"})
    assert compiled_contract(other).unwrap().violations("x") == ()


def test_what_was_compiled_goes_with_its_contract() -> None:
    gc.collect()
    before = len(contracts.compiled_schemas)
    held = [OutputContract(kind="json_schema", schema={"const": number}) for number in range(20)]
    judged = [compiled_contract(contract).unwrap().violations(number) for number, contract in enumerate(held)]
    assert judged == [()] * 20
    assert len(contracts.compiled_schemas) == before + 20
    held.clear()
    gc.collect()
    assert len(contracts.compiled_schemas) <= before


def test_a_contract_whose_schema_is_unusable_has_all_its_faults() -> None:
    contract = OutputContract(kind="json_schema", schema={"type": "nope", "minLength": -1})
    assert [fault.pointer for fault in compiled_contract(contract).failure()] == ["/minLength", "/type"]


def test_pydantic_is_not_needed() -> None:
    program = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from promptkit import OutputContract; print(OutputContract.of(dict[str, int]).name)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "dict\n"


@pytest.mark.parametrize(
    ("kind", "value", "decoded"),
    [
        (dict[int, str], {"1": "x"}, {1: "x"}),
        (int, 3.0, 3),
        (list[int], [1e3, 2], [1000, 2]),
        (dict[str, list[int]], {"a": [5.0]}, {"a": [5]}),
        (float, 3, 3.0),
    ],
)
def test_what_json_calls_equal_decodes_to_the_type(kind: Any, value: Any, decoded: Any) -> None:
    assert compile_schema(OutputContract.of(kind).schema).unwrap().violations(value) == ()
    found = result(value).decode(kind)
    assert found == decoded
    assert type(found) is type(decoded)


@pytest.mark.parametrize(("kind", "wrong"), [(dt.date, "Monday"), (uuid.UUID, "x"), (list[dt.date], ["?"])])
def test_an_answer_that_is_no_value_of_its_format_is_invalid_and_not_only_undecodable(kind: Any, wrong: Any) -> None:
    assert compile_schema(OutputContract.of(kind).schema).unwrap().violations(wrong)
