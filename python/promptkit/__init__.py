"""promptkit: configured prompts, and conversations that can be trusted.

Run prompts of a catalog against model backends; continue what they answered, on as many branches as you like; lead a
branch through a bounded number of turns; and know what it all used.
"""

from promptkit._blocking_engine import BlockingEngine
from promptkit._effects.blocking_coordination import BlockingCoordination
from promptkit._effects.coordination import Coordination
from promptkit._effects.execution_group import ExecutionGroup
from promptkit._effects.prepared_execution import PreparedExecution
from promptkit._engine import Engine
from promptkit._load_catalog import Catalog, load_catalog
from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import (
    Backend,
    EmbeddedOptions,
    MessageTemplate,
    Profile,
    PromptDefinition,
    RetryPolicy,
)
from promptkit._values.details import BackendDetails, ProfileDetails, PromptDetails
from promptkit._values.events import (
    AttemptFinished,
    ExecutionEvent,
    Observer,
    RetryDelayed,
    RunFinished,
    RunStarted,
    compose_observers,
    guard_observer,
)
from promptkit._values.exchange import Exchange, ExchangeDetails
from promptkit._values.generation import (
    EncodedMessages,
    GenerationCall,
    GenerationReply,
    InputReader,
    ModelClient,
)
from promptkit._values.group import ExecutionGroupMember, ExecutionGroupSummary, summary_table
from promptkit._values.json import JSON
from promptkit._values.messages import CacheControl, ContentPart, FilePart, ImagePart, Message, Role, TextPart
from promptkit._values.requests import Input, RunRequest
from promptkit._values.results import PreparedRun, RunResult, Setting, Timing, Validation, Violation
from promptkit._values.secret import Secret
from promptkit._values.turns import ConversationTurn, CoordinateRequest, CoordinationResult, NextTurn
from promptkit._values.usage import ReportedUsage, TokenCount, TokenUsage
from promptkit.errors import (
    AttemptTimeoutError,
    AuthenticationError,
    BackendStatusError,
    CapacityError,
    ConnectError,
    CredentialError,
    DisconnectedError,
    EngineStateError,
    Fault,
    GenerationError,
    InputError,
    InvalidConfigError,
    InvalidRequestError,
    MalformedReplyError,
    MissingProfileError,
    NotCapturedError,
    OutputInvalidError,
    OverloadedError,
    PreparedExecutionError,
    PromptKitError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
    TemplateError,
    UnknownBackendError,
    UnknownProfileError,
    UnknownPromptError,
    UnknownSchemaError,
)

__all__ = [
    "JSON",
    "AttemptFinished",
    "AttemptTimeoutError",
    "AuthenticationError",
    "Backend",
    "BackendDetails",
    "BackendStatusError",
    "BlockingCoordination",
    "BlockingEngine",
    "CacheControl",
    "CapacityError",
    "Catalog",
    "ConnectError",
    "ContentPart",
    "ConversationTurn",
    "CoordinateRequest",
    "Coordination",
    "CoordinationResult",
    "CredentialError",
    "DisconnectedError",
    "EmbeddedOptions",
    "EncodedMessages",
    "Engine",
    "EngineStateError",
    "Exchange",
    "ExchangeDetails",
    "ExecutionEvent",
    "ExecutionGroup",
    "ExecutionGroupMember",
    "ExecutionGroupSummary",
    "Fault",
    "FilePart",
    "GenerationCall",
    "GenerationError",
    "GenerationReply",
    "ImagePart",
    "Input",
    "InputError",
    "InputReader",
    "InvalidConfigError",
    "InvalidRequestError",
    "MalformedReplyError",
    "Message",
    "MessageTemplate",
    "MissingProfileError",
    "ModelClient",
    "NextTurn",
    "NotCapturedError",
    "Observer",
    "OutputContract",
    "OutputInvalidError",
    "OverloadedError",
    "PreparedExecution",
    "PreparedExecutionError",
    "PreparedRun",
    "Profile",
    "ProfileDetails",
    "PromptDefinition",
    "PromptDetails",
    "PromptKitError",
    "QuotaError",
    "RateLimitError",
    "RejectedRequestError",
    "ReportedUsage",
    "RetryDelayed",
    "RetryPolicy",
    "Role",
    "RunFinished",
    "RunRequest",
    "RunResult",
    "RunStarted",
    "Secret",
    "Setting",
    "TemplateError",
    "TextPart",
    "Timing",
    "TokenCount",
    "TokenUsage",
    "UnknownBackendError",
    "UnknownProfileError",
    "UnknownPromptError",
    "UnknownSchemaError",
    "Validation",
    "Violation",
    "compose_observers",
    "guard_observer",
    "load_catalog",
    "summary_table",
]
