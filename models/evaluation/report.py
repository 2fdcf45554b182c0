"""All metrics of a clip, and their summary over many.

Knows which metrics there are and how they add up; knows nothing of who spoke.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from models.evaluation.dnsmos import Dnsmos, dnsmos
from models.evaluation.edges import Edges, measure_edges
from models.evaluation.f0 import Melody, melody, track_f0
from models.evaluation.mos import distill_mos
from models.evaluation.pauses import Pauses, measure_pauses
from models.evaluation.speaker import speaker_similarity
from models.evaluation.transcribe import Errors, cer, transcribe, wer
from tts_spec.types import Pcm, SpeechError

LOST_ABOVE = 0.5  # word errors per word


@dataclass(frozen=True, slots=True)
class ClipScore:
    """Everything measured on one clip; units are those of the metrics' own modules."""

    reference: str
    heard: str
    seconds: float
    words: Errors
    characters: Errors
    distill_mos: float
    dnsmos: Dnsmos
    melody: Melody
    pauses: Pauses
    edges: Edges
    similarity: float | None  # of the voice to that of the reference clip; None without one

    @property
    def spoken_s(self) -> float:
        """Seconds from the first to the last audible moment; 0 when there is none."""
        return self.seconds - self.pauses.lead_s - self.pauses.tail_s

    @property
    def lost(self) -> bool:
        """Whether more than half of the words went wrong: some are missing, repeated or hang."""
        return self.words.rate > LOST_ABOVE


@dataclass(frozen=True, slots=True)
class Summary:
    """Over all clips: rates are total errors / total length, opinions and similarity are means of clips."""

    clips: int
    seconds: float
    wer: float
    cer: float
    substitutions: int  # of words
    deletions: int
    insertions: int
    lost: float  # share of the clips
    distill_mos: float
    dnsmos_ovrl: float
    dnsmos_sig: float
    dnsmos_bak: float
    dnsmos_p808: float
    spread_semitones: float | None  # None when no clip is voiced
    voiced_share: float
    pauses: float  # a clip
    pause_s: float  # a clip
    longest_pause_s: float  # of all
    lead_s: float
    tail_s: float
    first_dbfs: float
    last_dbfs: float
    cut: int  # clips that begin or end in the midst of speech
    jump: float  # the largest of all
    clipped: int  # samples of all clips
    similarity: float | None  # None without reference clips

    def as_dict(self) -> dict[str, float | None]:
        return asdict(self)


def score_clip(
    pcm: Pcm, sample_rate: int, reference_text: str, reference_pcm: Pcm | None = None, threads: int = 1
) -> ClipScore:
    """Runs every metric on ``pcm`` ([N] mono in [-1, 1]); about 3 s of one core per clip once the models are loaded.

    ``reference_pcm`` is another clip at the same rate of the voice that should be heard. A clip too short to be
    measured raises SpeechError: count it as a failed sentence, not as silence.
    """
    heard = transcribe(pcm, sample_rate, threads)
    return ClipScore(
        reference=reference_text,
        heard=heard,
        seconds=len(pcm) / sample_rate,
        words=wer(reference_text, heard),
        characters=cer(reference_text, heard),
        distill_mos=distill_mos(pcm, sample_rate),
        dnsmos=dnsmos(pcm, sample_rate),
        melody=melody(track_f0(pcm, sample_rate)),
        pauses=measure_pauses(pcm, sample_rate),
        edges=measure_edges(pcm, sample_rate),
        similarity=None if reference_pcm is None else speaker_similarity(pcm, reference_pcm, sample_rate),
    )


def summarise(scores: Sequence[ClipScore]) -> Summary:
    """Sums up at least one clip; raises SpeechError for none."""
    if not scores:
        raise SpeechError("invalid_value", "scores is empty; at least one clip is needed", "scores")
    words = sum((score.words for score in scores), Errors())
    characters = sum((score.characters for score in scores), Errors())
    spreads = [spread for score in scores if (spread := score.melody.spread_semitones) is not None]
    similarities = [score.similarity for score in scores if score.similarity is not None]
    return Summary(
        clips=len(scores),
        seconds=sum(score.seconds for score in scores),
        wer=words.rate,
        cer=characters.rate,
        substitutions=words.substitutions,
        deletions=words.deletions,
        insertions=words.insertions,
        lost=fmean(score.lost for score in scores),
        distill_mos=fmean(score.distill_mos for score in scores),
        dnsmos_ovrl=fmean(score.dnsmos.ovrl for score in scores),
        dnsmos_sig=fmean(score.dnsmos.sig for score in scores),
        dnsmos_bak=fmean(score.dnsmos.bak for score in scores),
        dnsmos_p808=fmean(score.dnsmos.p808 for score in scores),
        spread_semitones=fmean(spreads) if spreads else None,
        voiced_share=fmean(score.melody.voiced_share for score in scores),
        pauses=fmean(score.pauses.count for score in scores),
        pause_s=fmean(score.pauses.total_s for score in scores),
        longest_pause_s=max(score.pauses.longest_s for score in scores),
        lead_s=fmean(score.pauses.lead_s for score in scores),
        tail_s=fmean(score.pauses.tail_s for score in scores),
        first_dbfs=fmean(score.edges.first_dbfs for score in scores),
        last_dbfs=fmean(score.edges.last_dbfs for score in scores),
        cut=sum(score.edges.cut for score in scores),
        jump=max(score.edges.jump for score in scores),
        clipped=sum(score.edges.clipped for score in scores),
        similarity=fmean(similarities) if similarities else None,
    )
