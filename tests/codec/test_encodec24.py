"""EnCodec's architecture with random weights: streamed == whole, against the package's own decoding, and loading from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from encodec.model import EncodecModel
from encodec.modules.conv import SConv1d
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.codec.encodec24 import Encodec24, EncodecState, new_model

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def package() -> EncodecModel:
    torch.manual_seed(3)
    model = new_model()
    with torch.no_grad():
        for layer in model.quantizer.vq.layers:
            layer._codebook.embed.normal_()
            layer._codebook.inited.fill_(1)
    return model


@pytest.fixture(scope="module")
def checkpoint(package: EncodecModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encodec") / "weights.th"
    torch.save(package.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def codec(checkpoint: Path) -> Encodec24:
    return Encodec24.load(checkpoint, codebooks=8)


def random_codes(frames: int, batch: int = 1, seed: int = 0, codebooks: int = 8) -> Tensor:
    return torch.randint(1024, (batch, codebooks, frames), generator=torch.Generator().manual_seed(seed))


def decode_cut(codec: Encodec24, codes: Tensor, cuts: list[int]) -> Tensor:
    state = codec.initial_state(codes.shape[0])
    return torch.cat([codec.decode_step(part, state) for part in codes.split(cuts, dim=-1)], dim=-1)


def tensors(state: EncodecState) -> list[Tensor]:
    return [*state.pasts, *state.hidden, state.fresh]


def assert_close(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCE)


@given(cuts=st.lists(st.integers(1, 6), min_size=1, max_size=5), batch=st.integers(1, 2), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=12)
def test_any_cutting_gives_the_same_samples(codec: Encodec24, cuts: list[int], batch: int, seed: int) -> None:
    codes = random_codes(sum(cuts), batch, seed)
    whole = codec.decode(codes)
    assert whole.shape == (batch, 320 * sum(cuts))
    assert_close(decode_cut(codec, codes, cuts), whole)


def test_streams_joined_for_some_steps_continue_as_if_alone(codec: Encodec24) -> None:
    codes = random_codes(9, batch=2)
    alone = codec.decode(codes)
    first, second = codec.initial_state(1), codec.initial_state(1)
    head = codec.decode_step(codes[:1, :, :4], first)[0]  # the first is 4 frames ahead
    joined = type(first).join([second, first])
    both = codec.decode_step(torch.stack([codes[1, :, :5], codes[0, :, 4:]]), joined)
    second, first = joined.split()
    tail = codec.decode_step(codes[1:, :, 5:], second)[0]
    assert_close(torch.cat([head, both[1]]), alone[0])
    assert_close(torch.cat([both[0], tail]), alone[1])


def test_streams_of_any_lengths_equal_each_alone(codec: Encodec24) -> None:
    codes, lengths = random_codes(4, batch=3), (4, 2, 4)
    states = [codec.initial_state(1) for _ in lengths]
    for _ in range(2):
        parts = [codes[row, :, :length].numpy() for row, length in enumerate(lengths)]
        made = codec.decode_streams(parts, states)
    for row, length in enumerate(lengths):
        alone = codec.decode(codes[row : row + 1, :, :length].repeat(1, 1, 2))[0]
        assert_close(torch.from_numpy(made[row]), alone[len(alone) // 2 :])


def test_whole_equals_the_package_but_for_the_reflected_start(codec: Encodec24, package: EncodecModel) -> None:
    codes = random_codes(60, batch=2)
    ours = codec.decode(codes)
    with torch.inference_mode():
        theirs = package.decode([(codes, None)])[:, 0]
    difference = (ours - theirs).abs().view(2, 60, 320).amax(dim=(0, 2))
    assert theirs.std() > 10 * TOLERANCE
    assert difference[0] > TOLERANCE  # else the docstring is wrong
    assert difference[30:].max() < TOLERANCE  # the LSTM has forgotten the start


def test_whole_equals_the_package_to_the_first_sample_without_reflection(
    codec: Encodec24, package: EncodecModel
) -> None:
    plain = new_model()
    plain.load_state_dict(package.state_dict())
    for layer in plain.decoder.modules():
        if isinstance(layer, SConv1d):
            layer.pad_mode = "replicate"
    codes = random_codes(12, batch=2)
    with torch.inference_mode():
        theirs = plain.decode([(codes, None)])[:, 0]
    assert_close(codec.decode(codes), theirs)


def test_snapshot_is_untouched_and_continues_alike(codec: Encodec24) -> None:
    codes = random_codes(8, batch=2)
    state = codec.initial_state(2)
    codec.decode_step(codes[..., :3], state)
    kept = state.snapshot()
    before = [part.clone() for part in tensors(kept)]
    first = codec.decode_step(codes[..., 3:], state)
    assert all(map(torch.equal, before, tensors(kept)))
    assert torch.equal(codec.decode_step(codes[..., 3:], kept), first)


def test_reset_restarts_only_the_named_rows(codec: Encodec24) -> None:
    first, second = random_codes(4, batch=2), random_codes(3, batch=2, seed=1)
    state, untouched = codec.initial_state(2), codec.initial_state(2)
    codec.decode_step(first, state)
    codec.decode_step(first, untouched)
    state.reset(torch.tensor([False, True]))
    made = codec.decode_step(second, state)
    fresh, running = codec.decode(second), codec.decode_step(second, untouched)
    assert_close(made, torch.stack([running[0], fresh[1]]))
    assert (fresh - running).abs().amax(1).min() > TOLERANCE


@pytest.mark.parametrize("frame", [0, 3])
def test_later_codes_change_no_earlier_sample(codec: Encodec24, frame: int) -> None:
    codes = random_codes(6)
    changed = codes.clone()
    changed[..., frame + 1 :] = random_codes(5 - frame, seed=5)
    a, b = codec.decode(codes), codec.decode(changed)
    final = 320 * (frame + 1)
    assert codec.lookahead_frames == 0
    assert_close(a[:, :final], b[:, :final])
    assert (a - b)[:, final:].abs().max() > TOLERANCE


@pytest.mark.parametrize("codebooks", [2, 32])
def test_encode_equals_the_package(checkpoint: Path, package: EncodecModel, codebooks: int) -> None:
    codec = Encodec24.load(checkpoint, codebooks)
    pcm = torch.randn(2, 320 * 20, generator=torch.Generator().manual_seed(2)) * 0.1
    codes = codec.encode(pcm)
    assert codes.shape == (2, codebooks, 20)
    package.set_target_bandwidth(0.75 * codebooks)
    with torch.inference_mode():
        ((theirs, _),) = package.encode(pcm[:, None])
    assert (codes == theirs).float().mean() > 0.99  # a tie may fall either way by rounding
    assert codec.decode(codes).isfinite().all()


def test_bad_values_are_named(codec: Encodec24, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pcm has shape \[1, 600\].*multiple of 320"):
        codec.encode(torch.zeros(1, 600))
    with pytest.raises(ValueError, match=r"codes have shape \[1, 4, 2\]; allowed: \[B, 8, F\]"):
        codec.decode(random_codes(2, codebooks=4))
    with pytest.raises(ValueError, match="codes reach from 1024 to 1024; allowed: 0 to 1023"):
        codec.decode(torch.full((1, 8, 2), 1024))
    with pytest.raises(ValueError, match="codes are of 1 streams, their state of 3"):
        codec.decode_step(random_codes(1), codec.initial_state(3))
    with pytest.raises(ValueError, match="codebooks is 5; allowed: 2, 4, 8, 16, 32"):
        Encodec24.load(checkpoint, codebooks=5)
    (tmp_path / "text.th").write_text("no weights")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.th")
    for name in ("text.th", "other.th"):
        with pytest.raises(ValueError, match=rf"{name} is not a checkpoint of EnCodec 24 kHz"):
            Encodec24.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Encodec24.load(tmp_path / "missing.th")
