"""``promptkit chat``: a conversation line by line, with branches."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from returns.result import Failure, Result

from promptkit import BlockingEngine, ExecutionGroup, compose_observers
from promptkit._cli import conversation as moves
from promptkit._cli.catalog_folder import opened_catalog
from promptkit._cli.chat_lines import Command, Entry, Message, help_lines, meaning, read_entry
from promptkit._cli.chat_notes import usage_lines
from promptkit._cli.chat_opening import Opening, opening_of, prepared
from promptkit._cli.chat_prompts import sentence_of
from promptkit._cli.conversation import BEGINNING, Attempt, Conversation
from promptkit._cli.conversation_tree import ASCII, DRAWN, tree_lines, tree_value
from promptkit._cli.exits import CANCELLED, DONE, FAILED, TimedOutError, WrongUseError
from promptkit._cli.failure import note_of
from promptkit._cli.failure import sentence_of as error_sentence
from promptkit._cli.kept_run import kept_run
from promptkit._cli.line_reader import LineReader
from promptkit._cli.progress import Progress
from promptkit._cli.run import exit_of_result, tell
from promptkit._cli.streams import BOLD, DIM, PLAIN, Streams
from promptkit._cli.trace import Trace
from promptkit.errors import PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from promptkit import Observer, PreparedRun, RunResult
    from promptkit._cli.asking import Typed

LEAVING = "Ctrl-C once more, Ctrl-D or /quit leaves; /help lists the commands"
STAYED = "you are where you were; /retry says it again"


class ChatOptions(NamedTuple):
    """How a chat goes, by its options."""

    timeout: float | None = None
    verbose: bool = False


def chat(
    typed: Typed,
    *,
    line: str | None,
    continue_with: str | None,
    catalog: Path | None,
    trace: Path | None,
    options: ChatOptions,
    streams: Streams,
) -> int:
    """Hold the chat, and give the exit status."""
    opening = opening_of(opened_catalog(catalog), typed, line, continue_with)
    with contextlib.ExitStack() as stack:
        written = None if trace is None else stack.enter_context(Trace(trace))
        engine = stack.enter_context(BlockingEngine(opening.catalog, input_reader=opening.ask.files))
        details = prepared(engine, opening)
        session = ChatSession(opening, engine, written, options, streams)
        try:
            session.greet(details)
            status = session.hold()
        except KeyboardInterrupt:
            status = CANCELLED
        session.end()
    if written is not None and written.failure is not None:
        streams.error(written.failure)
        return status or FAILED
    return status


class ChatSession:
    """Reads lines, runs, and shows what came. What becomes of the conversation is decided by values."""

    def __init__(
        self,
        opening: Opening,
        engine: BlockingEngine,
        observer: Observer | None,
        options: ChatOptions,
        streams: Streams,
    ) -> None:
        self._opening = opening
        self._engine = engine
        self._observer = observer
        self._options = options
        self._streams = streams
        self._reader = LineReader(streams)
        self._group = ExecutionGroup()
        self._results: dict[str, RunResult] = {}
        self._now = Conversation()
        self._status = DONE

    def greet(self, details: PreparedRun | None) -> None:
        """Tell a person whom the lines go to, and how."""
        if not (self._reader.interactive or self._options.verbose):
            return
        to = "" if details is None else f" · {details.model} on {details.backend}"
        self._note(f"{self._opening.routing.opening.prompt_id}{to}", BOLD)
        self._note(sentence_of(self._opening.routing, self._opening.say))
        self._note("/help lists the commands, Ctrl-D ends the chat", DIM)

    def hold(self) -> int:
        """Talk until the lines end, and give the exit status. Raises KeyboardInterrupt where nobody types."""
        leaving = False
        begins = self._opening.routing.begins_by_itself
        while True:
            try:
                if begins:
                    begins = False
                    self._attempt(Attempt(BEGINNING, None))
                entry = read_entry(self._reader.read, f"{self._now.place}> ")
                if not self._goes_on(entry):
                    break
                leaving = False
            except KeyboardInterrupt:
                if not self._reader.interactive:
                    raise
                self._streams.end_line()
                if self._reader.dropped:  # what was being typed is gone, and that is all
                    leaving = False
                    continue
                if leaving:
                    break
                leaving = True
                self._note(LEAVING, DIM)
        return DONE if self._reader.interactive else self._status

    def end(self) -> None:
        """Tell what it all used, if anything ran."""
        summary = self._group.snapshot()
        if not summary.members:
            return
        if self._streams.as_json:
            turns = self._now.turns
            told = {"turns": len(turns), "branches": moves.branches(turns), "summary": summary}
            self._streams.json_error({"chat": told})
            return
        self._tell(usage_lines(self._now, summary))

    def _goes_on(self, entry: Result[Entry, str] | None) -> bool:
        """Do what was typed. False when it was the last."""
        if entry is None:
            if self._reader.interactive:
                self._streams.end_line()
            return False
        if self._reader.ended and self._reader.interactive:  # in the middle of an entry
            self._streams.end_line()
        asks = entry.bind(meaning)
        if isinstance(asks, Failure):
            self._fault(asks.failure())
            return True
        match asks.unwrap():
            case Message(text):
                self._attempt(moves.said(self._now, text))
            case Command("/quit"):
                return False
            case Command(command, number):
                self._do(command, number)
        return True

    def _do(self, command: str, number: int | None) -> None:
        match command:
            case "/tree" if self._streams.as_json:
                self._streams.json_error({"tree": tree_value(self._now)})
            case "/usage" if self._streams.as_json:
                self._streams.json_error({"usage": self._group.snapshot()})
            case "/tree":
                unicode = self._streams.err.encoding.lower().startswith("utf")
                title = self._opening.routing.opening.prompt_id
                self._tell(tree_lines(self._now, title, self._streams.err.width, DRAWN if unicode else ASCII))
            case "/usage":
                self._tell(usage_lines(self._now, self._group.snapshot()))
            case "/help":
                self._tell(
                    [sentence_of(self._opening.routing, self._opening.say), *help_lines(self._streams.err.width)]
                )
            case "/retry":
                again = moves.retry(self._now)
                if isinstance(again, Failure):
                    self._fault(again.failure())
                else:
                    self._attempt(again.unwrap())
            case _:
                self._move(
                    moves.back(self._now, number or 1) if command == "/back" else moves.branch(self._now, number)
                )

    def _move(self, moved: Result[Conversation, str]) -> None:
        if isinstance(moved, Failure):
            self._fault(moved.failure())
            return
        self._now = moved.unwrap()
        self._note(moves.place_text(self._now), DIM)

    def _attempt(self, attempt: Attempt) -> None:
        known = len(self._now.turns)
        try:
            self._run(attempt)
        except KeyboardInterrupt:
            if len(self._now.turns) > known:  # the answer came first
                self._show(self._newest())
            if not self._reader.interactive:
                raise
            if len(self._now.turns) == known:
                self._now = moves.failed(self._now, attempt)
                self._note(f"cancelled; {STAYED}")
        except (PromptKitError, TimedOutError) as error:
            self._now = moves.failed(self._now, attempt)
            self._tell_error(error, self._opening.hint(error) if attempt.parent == BEGINNING else None)
        else:
            self._show(self._newest())

    def _newest(self) -> RunResult:
        return self._results[self._now.turns[-1].run_id]

    def _run(self, attempt: Attempt) -> None:
        parent = self._now.turns[attempt.parent - 1] if attempt.parent else None
        request = self._opening.request(attempt.said, None if parent is None else self._results[parent.run_id])

        def keep(result: RunResult) -> None:
            self._results[result.run_id] = result
            remark = "invalid" if result.validation.status == "invalid" else ""
            self._now = moves.answered(self._now, attempt, result.run_id, result.raw_output, remark)

        with Progress(self._streams, self._opening.routing.opening.prompt_id) as progress:
            observer = compose_observers(self._group.observe, self._observer, progress.observe)
            observed = msgspec.structs.replace(request, observer=observer)
            kept_run(self._engine, observed, self._options.timeout, progress, keep)

    def _show(self, result: RunResult) -> None:
        if self._status == DONE:
            self._status = exit_of_result(result)
        if self._streams.as_json:
            self._streams.json(result)
            return
        self._streams.result(result.raw_output)
        tell(result, self._streams, verbose=self._options.verbose)

    def _tell_error(self, error: PromptKitError | TimedOutError, hint: str | None) -> None:
        self._fault(error_sentence(error), error, hint)
        note = None if self._streams.as_json else note_of(error)
        if note is not None:
            self._streams.note(note, DIM)
        if self._reader.interactive:
            self._note(STAYED, DIM)

    def _fault(self, message: str, error: BaseException | None = None, hint: str | None = None) -> None:
        self._status = FAILED
        self._streams.error(message, error or WrongUseError(message), hint)

    def _tell(self, lines: Iterable[str]) -> None:
        for each in lines:
            self._note(each)

    def _note(self, text: str, style: str = PLAIN) -> None:
        self._streams.say(text, style)
