"""What was measured before: scores and the teacher's clips, kept in a folder so that the next run need not make them again.

A key must name all a clip depends on. Kept scores are as old as the metrics that gave them: after a change of a metric use another folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import soundfile

from models.bundle import build
from models.evaluation.report import ClipScore
from tts_spec.types import Pcm


class Kept:
    """Scores in ``scores.jsonl`` and clips as FLAC (24 bit) of a folder, made when missing. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        """Raises BundleError for a score of another form."""
        self._folder = folder
        self._scores: dict[str, ClipScore] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = folder / "scores.jsonl"
            if self._file.exists():
                whole = [line for line in self._file.read_text().splitlines(keepends=True) if line.endswith("\n")]
                self._file.write_text("".join(whole))  # a run that was stopped may have left half a line
                for line in map(json.loads, whole):
                    self._scores[line["key"]] = build(ClipScore, line["score"], str(self._file))

    def score(self, key: str, make: Callable[[], ClipScore]) -> ClipScore:
        """The score of ``key``, by ``make`` if it is not kept yet."""
        if key not in self._scores:
            self._scores[key] = make()
            if self._folder is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps({"key": key, "score": asdict(self._scores[key])}) + "\n")
        return self._scores[key]

    def clip(self, key: str, make: Callable[[], tuple[Pcm, int]]) -> Pcm:
        """The clip of ``key`` ([N] mono in [-1, 1]), by ``make`` (samples and rate) if it is not kept yet."""
        if self._folder is None:
            return make()[0]
        path = self._folder / f"{sha256(key.encode()).hexdigest()[:20]}.flac"
        if not path.exists():
            part = path.with_suffix(".part")
            pcm, rate = make()
            soundfile.write(part, pcm, rate, format="FLAC", subtype="PCM_24")
            part.rename(path)
        kept: Pcm = soundfile.read(path, dtype="float32")[0]
        return kept
