"""The pydantic models of the naive gateway: requests, responses, events, chunks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

# Requests of the client


class InputText(BaseModel):
    type: Literal["input_text"]
    text: str


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class Message(BaseModel):
    type: Literal["message"] = "message"
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Annotated[InputText | OutputText, Field(discriminator="type")]]
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class FunctionCall(BaseModel):
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    call_id: str
    name: str
    arguments: str
    status: str | None = None


class FunctionCallOutput(BaseModel):
    type: Literal["function_call_output"]
    call_id: str
    output: str


class Reasoning(BaseModel):
    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[Any] = []
    content: list[Any] = []


class FunctionTool(BaseModel):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CreateResponse(BaseModel):
    model: str
    input: str | list[Annotated[Message | FunctionCall | FunctionCallOutput, Field(discriminator="type")]]
    instructions: str | None = None
    tools: list[FunctionTool] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    store: bool = True
    stream: bool = False


# Responses and events for the client


class Usage(BaseModel):
    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


Item = Message | FunctionCall | Reasoning


class ResponseObject(BaseModel):
    id: str
    object: str = "response"
    created_at: int
    status: str
    error: Any = None
    incomplete_details: Any = None
    previous_response_id: str | None = None
    instructions: str | None = None
    model: str
    tools: list[FunctionTool] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    store: bool = True
    truncation: str = "disabled"
    text: dict[str, Any] = {"format": {"type": "text"}}
    background: bool = False
    output: list[Item] = []
    usage: Usage | None = None


class Event(BaseModel):
    type: str
    sequence_number: int


class ResponseEvent(Event):
    response: ResponseObject


class ItemEvent(Event):
    output_index: int
    item: Item


class PartEvent(Event):
    item_id: str
    output_index: int
    content_index: int = 0
    part: OutputText


class DeltaEvent(Event):
    item_id: str
    output_index: int
    content_index: int = 0
    delta: str


class TextDoneEvent(Event):
    item_id: str
    output_index: int
    content_index: int = 0
    text: str


class ArgumentsDoneEvent(Event):
    item_id: str
    output_index: int
    arguments: str


# Chunks and completions of the upstream


class ChunkFunction(BaseModel):
    name: str | None = None
    arguments: str | None = None


class ChunkCall(BaseModel):
    index: int
    id: str | None = None
    function: ChunkFunction


class ChunkDelta(BaseModel):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChunkCall] | None = None


class ChunkChoice(BaseModel):
    index: int
    delta: ChunkDelta
    finish_reason: str | None = None


class ChatUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


class Chunk(BaseModel):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | None = None


class CompletionMessage(BaseModel):
    role: str
    content: str | None = None


class CompletionChoice(BaseModel):
    index: int
    message: CompletionMessage


class Completion(BaseModel):
    id: str
    choices: list[CompletionChoice]
    usage: ChatUsage | None = None
