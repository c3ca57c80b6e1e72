"""What kind of content an attached input has: by its first bytes, else by the ending of its file's name.

The table is promptkit's own: the one of the operating system differs between machines, and so would every hash.
"""

from __future__ import annotations

from returns.result import Failure, Result, Success

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # those that every backend with images takes

SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)

ENDINGS = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "c": "text/x-c",
    "cpp": "text/x-c++",
    "css": "text/css",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "eml": "message/rfc822",
    "epub": "application/epub+zip",
    "flac": "audio/flac",
    "go": "text/x-go",
    "gz": "application/gzip",
    "heic": "image/heic",
    "htm": "text/html",
    "html": "text/html",
    "ics": "text/calendar",
    "java": "text/x-java",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "m4a": "audio/mp4",
    "md": "text/markdown",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "ogg": "audio/ogg",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "rs": "text/x-rust",
    "rtf": "application/rtf",
    "sql": "application/sql",
    "svg": "image/svg+xml",
    "tex": "text/x-tex",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "toml": "application/toml",
    "ts": "text/x-typescript",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "vtt": "text/vtt",
    "wav": "audio/wav",
    "webm": "video/webm",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
}

# Files of these endings have a signature: without it they are something else, or damaged.
SIGNED = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "gif": "GIF", "webp": "WebP"}

NAMED_IN_ERRORS = ".txt, .md, .csv, .json or .pdf"


def media_type_of(content: bytes, name: str | None) -> Result[str, str]:
    """Tell the media type of some bytes. ``name`` is that of their file, None for inline data.

    The failure says why there is none, and what to do.
    """
    signed = _by_signature(content)
    if signed is not None:
        return Success(signed)
    if name is None:
        return Failure(
            "is inline data of an unknown kind (known by their content are PNG, JPEG, GIF, WebP and PDF): give text as"
            " str, or a path object whose name tells the kind, or a FilePart in appended_messages"
        )
    stem, dot, ending = name.rpartition(".")
    ending = ending.lower() if dot and stem else ""
    if ending in SIGNED:
        return Failure(f"is named {name!r}, and its content is no {SIGNED[ending]} image: give the image itself")
    found = ENDINGS.get(ending)
    if found is None:
        return Failure(
            f"is the file {name!r}, whose name does not tell its kind: let it end with {NAMED_IN_ERRORS} or the like,"
            " or give a FilePart in appended_messages"
        )
    return Success(found)


def names_media(text: str) -> bool:
    """Say whether a text is more likely the name of an image or of another file than the content of one."""
    stem, dot, ending = text.rpartition(".")
    return bool(stem and dot) and len(text) < 1000 and "\n" not in text and ending.lower() in ENDINGS.keys() | SIGNED


def _by_signature(content: bytes) -> str | None:
    for signature, media_type in SIGNATURES:
        if content.startswith(signature):
            return media_type
    return "image/webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None
