"""Translates media in a gemini client's parts to hub content, by kind, as data or as a URL.

Data may use either base64 alphabet. It is sent on in the standard one, which is the only one that other servers accept.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from antiphon.dialects.common.documents import is_video_page
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.gemini.wire import BlobIn, FileDataIn, PartIn, ResultMediaIn
from antiphon.protocol.content import InputAudio, InputAudioData, InputFileParam, InputImageParam, InputVideo
from antiphon.protocol.losses import Losses

Medium = InputImageParam | InputFileParam | InputVideo | InputAudio


def media_to_hub(part: PartIn | ResultMediaIn, path: str, losses: Losses) -> Medium | None:
    """The image, audio, video or file in a part; None if there is none."""
    if part.inline_data:
        report_unknown_fields(part.inline_data, f"{path}.inlineData", losses)
        return _inline_to_hub(part.inline_data)
    if part.file_data:
        report_unknown_fields(part.file_data, f"{path}.fileData", losses)
        return _file_to_hub(part.file_data)
    return None


def standard_base64(data: str) -> str:
    """Base64 in the standard alphabet, with padding."""
    unpadded = data.rstrip("=")
    return unpadded.translate(TO_STANDARD_ALPHABET) + "=" * (-len(unpadded) % 4)


def _inline_to_hub(blob: BlobIn) -> Medium:
    data = standard_base64(blob.data)
    kind, _, subtype = blob.mime_type.partition("/")
    url = f"data:{blob.mime_type};base64,{data}"
    match kind:
        case "image":
            return InputImageParam(image_url=url)
        case "audio":
            return InputAudio(input_audio=InputAudioData(data=data, format=AUDIO_FORMATS.get(subtype, subtype)))
        case "video":
            return InputVideo(video_url=url)
        case _:
            return InputFileParam(file_data=url, filename=blob.display_name or UNSET)


def _file_to_hub(file: FileDataIn) -> Medium:
    match (file.mime_type or "").partition("/")[0]:
        case "image":
            return InputImageParam(image_url=file.file_uri)
        case "video":
            return InputVideo(video_url=file.file_uri)
        case "" if is_video_page(file.file_uri):
            return InputVideo(video_url=file.file_uri)
        case _:
            return InputFileParam(file_url=file.file_uri, filename=file.display_name or UNSET)


TO_STANDARD_ALPHABET: Final = str.maketrans("-_", "+/")
#: Audio subtypes whose common name differs.
AUDIO_FORMATS: Final = {"mpeg": "mp3", "mpga": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
