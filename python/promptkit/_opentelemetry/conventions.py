"""The names of what is emitted, written down here: importing them would bind promptkit to a package that moves.

They are those of OpenTelemetry's semantic conventions 1.41, the last release with a text on generative AI. That text
has moved to a repository of its own, open-telemetry/semantic-conventions-genai, which renames much and, when this was
written, had released nothing: what reads telemetry knows the names of 1.41. Only ``gen_ai.prompt.version`` is from
there, since 1.41 has no name for it. What has no name in either starts with ``promptkit.``.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

OPERATION = "gen_ai.operation.name"
CHAT = "chat"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_SEED = "gen_ai.request.seed"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
PROMPT_NAME = "gen_ai.prompt.name"
PROMPT_VERSION = "gen_ai.prompt.version"
TOKEN_TYPE = "gen_ai.token.type"

ERROR_TYPE = "error.type"
CANCELLED = "cancelled"
STATUS_CODE = "http.response.status_code"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

RUN_ID = "promptkit.run_id"
PARENT_RUN_ID = "promptkit.parent_run_id"
PROFILE = "promptkit.profile"
BACKEND = "promptkit.backend"
OUTCOME = "promptkit.outcome"
UNOBSERVED = "unobserved"
VALIDATION = "promptkit.validation"
ATTEMPT = "promptkit.attempt"
PURPOSE = "promptkit.purpose"
QUEUED = "promptkit.queued"
ATTEMPTS = "promptkit.attempts"
TRANSIENT_RETRIES = "promptkit.transient_retries"
REPAIR_CALLS = "promptkit.repair_calls"
USAGE_PARTIAL = "promptkit.usage.partial"

RETRY = "promptkit.retry"
RETRY_DELAY = "promptkit.retry.delay"
RETRY_SOURCE = "promptkit.retry.source"

# The counts by the field of TokenUsage. Those of an attempt have the conventions' names, which are inclusive as ours
# are: "This value SHOULD include all types of input tokens, including cached tokens", and each of the others "SHOULD be
# included in" input or output. The totals of a run have names of their own: who adds up all that is called
# gen_ai.usage.* would count each token twice.
ATTEMPT_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
RUN_USAGE = {name: f"promptkit.usage.{name}" for name in ATTEMPT_USAGE}

OPERATION_DURATION = "gen_ai.client.operation.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"
RUN_DURATION = "promptkit.run.duration"
QUEUE_DURATION = "promptkit.queue.duration"

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

# What the conventions call the providers at these addresses, or below them.
PROVIDERS_BY_HOST = {
    "api.anthropic.com": "anthropic",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
}

# Else the kind of the backend speaks. Many servers resemble OpenAI's, and are not OpenAI: where no well-known value
# applies, "a custom value MAY be used".
PROVIDERS_BY_KIND = {
    "anthropic_messages": "anthropic",
    "chat_completions": "openai_compatible",
    "embedded": "embedded",
}
