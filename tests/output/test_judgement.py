"""What a reply is worth under its contract, and what is sent back about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from promptkit import GenerationReply, Message, OutputContract, Validation, Violation
from promptkit._output.judgement import Judgement, judge
from promptkit._output.repair import repair_messages
from promptkit._values.schemas import compile_schema

MARK = "CONTENT-MARK"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "x/y~z": {"type": "null"}},
    "required": ["a"],
}
STRICT = OutputContract(kind="json_schema", schema=SCHEMA, max_repairs=1)
COMPILED = compile_schema(SCHEMA).unwrap()


def judged(content: str, **fields: Any) -> Judgement:
    return judge(GenerationReply(content=content, **fields), STRICT, COMPILED)


@pytest.mark.parametrize("content", ["", "   \n", "text", "{", '{"a":1}', "\x00"])
@pytest.mark.parametrize("finish", ["stop", "length", "content_filter", None])
def test_a_text_contract_takes_any_content_and_says_so(content: str, finish: str | None) -> None:
    reply = GenerationReply(content=content, finish_reason=finish, refusal="no")
    assert judge(reply, OutputContract(), None) == (Validation(status="not_requested"), None, False)


def test_a_valid_answer_has_its_value() -> None:
    assert judged('{"a":1}', finish_reason="stop") == (Validation(status="valid"), {"a": 1}, False)
    fenced = judged('```json\n{"a":1}\n```')
    assert fenced == (Validation(status="valid", extraction="fenced"), {"a": 1}, False)
    assert judge(GenerationReply(content="[1]"), OutputContract(kind="json"), None).value == [1]
    assert judge(GenerationReply(content="null"), OutputContract(kind="json"), None).validation.status == "valid"


def test_each_violation_has_its_json_pointer_and_no_text_of_the_answer() -> None:
    found = judged(msgspec.json.encode({"a": MARK, "x/y~z": MARK}).decode())
    assert found.validation.status == "invalid"
    assert found.value is None
    assert found.curable
    assert sorted(violation.pointer for violation in found.validation.violations) == ["/a", "/x~1y~0z"]
    assert all(MARK not in violation.message for violation in found.validation.violations)
    (whole,) = judged(MARK).validation.violations
    assert whole.pointer == ""
    assert MARK not in whole.message


@pytest.mark.parametrize("finish", ["length", "content_filter", "model_length", "max_tokens", "refusal"])
def test_an_answer_that_was_cut_or_filtered_is_not_curable(finish: str) -> None:
    for content in ('{"a":', "", '{"a":"x"}'):
        found = judged(content, finish_reason=finish)
        assert found.validation.status == "invalid"
        assert found.value is None
        assert not found.curable


@pytest.mark.parametrize("finish", ["stop", "eos", "tool_calls", None, "something_new"])
def test_any_other_finish_is_curable(finish: str | None) -> None:
    assert judged("prose", finish_reason=finish).curable


@pytest.mark.parametrize("content", ["", "I can't help with that.", '{"a":1}'])
def test_a_refusal_is_invalid_and_not_curable_whatever_the_content(content: str) -> None:
    found = judged(content, refusal="I can't help with that.")
    assert found.validation.status == "invalid"
    assert found.validation.violations
    assert found.value is None
    assert not found.curable


def test_a_refusal_that_only_the_finish_reason_tells_is_one() -> None:
    judged = judge(GenerationReply(content='{"a": 1}', finish_reason="refusal"), OutputContract(kind="json"), None)
    assert (judged.validation.status, judged.value, judged.curable) == ("invalid", None, False)


def test_an_empty_refusal_is_none() -> None:
    assert judged('{"a":1}', refusal="").validation.status == "valid"
    assert judged("prose", refusal="").curable


def test_a_repair_is_the_rejected_answer_and_one_message_that_says_what_was_wrong() -> None:
    violations = (Violation(pointer="/a", message="is not an integer"), Violation(pointer="", message="is cut"))
    answer, correction = repair_messages("the answer {{ x }}\n", violations)
    assert answer == Message(role="assistant", content="the answer {{ x }}\n")
    assert correction.role == "user"
    assert correction.content == (
        "Your answer does not have the form that was asked for:\n"
        "- at /a: is not an integer\n"
        "- the whole answer: is cut\n"
        "Answer again with one corrected JSON document and nothing else."
    )


@pytest.mark.parametrize("number", [1, 10, 11, 1000])
@pytest.mark.parametrize("length", [1, 100_000])
def test_a_correction_is_bounded_whatever_the_answer_was(number: int, length: int) -> None:
    violations = tuple(Violation(pointer="/" + "k" * length, message="m" * length) for _ in range(number))
    answer, correction = repair_messages("x" * length, violations)
    assert answer.content == "x" * length
    assert len(correction.content) < 8000
    assert ("and 990 more" in correction.content) == (number == 1000)


@pytest.mark.parametrize("content", ["[" * 256 + "]" * 256, '{"a":' * 256 + "1" + "}" * 256])
def test_a_wrong_answer_of_the_deepest_nesting_is_invalid_like_any_other(content: str) -> None:
    found = judged(content)
    assert found.validation.status == "invalid"
    assert found.curable


def test_judging_and_correcting_hostile_answers_stays_bounded() -> None:
    long = "k" * 50_000
    for content in ("{" * 10_000, f'{{"{long}":1}}', f'{{"a":"{long}"}}', '{"a":"x"}' * 1000, "[" * 256 + "]" * 256):
        found = judged(content)
        assert found.curable
        _, correction = repair_messages(content, found.validation.violations)
        assert len(correction.content) < 8000
