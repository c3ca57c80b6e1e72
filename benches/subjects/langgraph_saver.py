"""LangGraph: a graph over MessagesState with an InMemorySaver; a branch is a run from a checkpoint."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from subjects import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

os.environ["LANGSMITH_TRACING"] = "false"  # nothing is sent anywhere


class Implementation(Subject):
    """A history is the config of a thread, with a checkpoint where it was loaded."""

    packages = ("langgraph", "langchain-core", "msgspec")

    def __init__(self) -> None:
        self._saver = InMemorySaver()
        builder = StateGraph(MessagesState)
        builder.add_node("model", self._answer)
        builder.add_edge(START, "model")
        self._graph = builder.compile(checkpointer=self._saver)
        self._threads = count()
        self._reply = ""
        self._wanted = False
        self._body = b""

    def _answer(self, state: Any) -> dict[str, list[Any]]:
        if self._wanted:
            self._body = msgspec.json.encode(convert_to_openai_messages(state["messages"]))
        return {"messages": [AIMessage(self._reply)]}

    def load(self, turns: Iterable[tuple[str, str]]) -> dict[str, Any]:
        config: dict[str, Any] = {"configurable": {"thread_id": str(next(self._threads))}}
        messages: list[Any] = []
        for user, reply in turns:
            messages += [HumanMessage(user), AIMessage(reply)]
        return dict(self._graph.update_state(config, {"messages": messages})) if messages else config

    def grow(self, history: dict[str, Any], user: str, reply: str) -> dict[str, Any]:
        self._reply = reply
        self._graph.invoke({"messages": [HumanMessage(user)]}, history)
        return {"configurable": {"thread_id": history["configurable"]["thread_id"]}}  # its latest checkpoint

    branch = grow

    def grow_with_body(self, history: dict[str, Any], user: str, reply: str) -> tuple[dict[str, Any], bytes]:
        self._wanted = True
        try:
            return self.grow(history, user, reply), self._body
        finally:
            self._wanted = False

    def body(self, history: dict[str, Any], user: str) -> bytes:
        return msgspec.json.encode(convert_to_openai_messages([*self.details(history), HumanMessage(user)]))

    def details(self, history: dict[str, Any]) -> list[Any]:
        return list(self._graph.get_state(history).values.get("messages", ()))

    def drop(self, history: dict[str, Any]) -> None:
        self._saver.delete_thread(history["configurable"]["thread_id"])

    def pair(self, message: Any) -> tuple[str, str]:
        return "user" if message.type == "human" else "assistant", message.content
