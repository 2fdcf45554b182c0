"""The two inner loops of decoding on the CPU as LLVM vector code for numba: a tile of a matrix product, and a weighted sum of rows.

Written by hand because the sums must stay in registers, and because bfloat16 pairs are multiplied by an instruction (AVX-512 VDPBF16PS)
that compilers do not choose by themselves; where the processor lacks it, the same products are made in float32. Every output is summed in
the order of its own row alone, so it never depends on the rows beside it. Vectors are 16 lanes, which LLVM splits where registers are
narrower. Knows addresses; the callers in ``models.kernels`` know shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
TILE_LANES = 64  # columns of a tile: four vectors
MOST_ROWS = 6  # of a tile: 24 sums and what they are fed from fit in 32 registers
MOST_WEIGHED = 6
LINE = 64  # bytes of a cache line
FETCHED = TILE_LANES * 4  # bytes that a tile fetches with every step

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_INTS, _FLOATS = ir.VectorType(_I32, LANES), ir.VectorType(_F32, LANES)


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash("bfloat")


_BFLOATS = ir.VectorType(_BFloat(), 2 * LANES)


def _has_bfloat16_dot() -> bool:
    return bool(binding.get_host_cpu_features().get("avx512bf16", False))


class _Code:
    """The builder, with the few operations used here. Addresses are integers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def address(self, base: Any, *terms: Any) -> Any:
        """``base`` plus every term: an int, or a pair to be multiplied."""
        for term in terms:
            if isinstance(term, tuple):
                left, right = (ir.Constant(_I64, part) if isinstance(part, int) else part for part in term)
                value = self.builder.mul(left, right)
            else:
                value = ir.Constant(_I64, term)
            base = self.builder.add(base, value)
        return base

    def load(self, address: Any, kind: Any, align: int = 4) -> Any:
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=align)

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer()), align=4)

    def fetch(self, address: Any) -> None:
        """Have the ``FETCHED`` bytes at ``address``, which need not exist, brought into the cache meanwhile."""
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0i8")
        how = [ir.Constant(_I32, value) for value in (0, 3, 1)]  # to read, into the innermost cache, data
        for offset in range(0, FETCHED, LINE):
            self.builder.call(function, [self.builder.inttoptr(self.address(address, offset), pointer), *how])

    def spread(self, value: Any) -> Any:
        """A 32-bit integer in every lane."""
        one = self.builder.insert_element(ir.Constant(_INTS, ir.Undefined), value, ir.Constant(_I32, 0))
        return self.builder.shuffle_vector(one, ir.Constant(_INTS, ir.Undefined), ir.Constant(_INTS, [0] * LANES))

    def zeros(self) -> Any:
        place = cgutils.alloca_once(self.builder, _FLOATS)
        self.builder.store(ir.Constant(_FLOATS, [0.0] * LANES), place)
        return place

    def multiply_add(self, left: Any, right: Any, place: Any) -> None:
        """``place`` += product of two vectors of float32 bits."""
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.fma.v16f32")
        floats = [self.builder.bitcast(each, _FLOATS) for each in (left, right)]
        self.builder.store(self.builder.call(function, [*floats, self.builder.load(place)]), place)

    def multiply_add_pairs(self, left: Any, right: Any, place: Any) -> None:
        """``place`` += both products of two vectors of bfloat16 pairs."""
        if _has_bfloat16_dot():
            kind = ir.FunctionType(_FLOATS, [_FLOATS, _BFLOATS, _BFLOATS])
            name = "llvm.x86.avx512bf16.dpbf16ps.512"
            function = cgutils.get_or_insert_function(self.builder.module, kind, name)
            pairs = [self.builder.bitcast(each, _BFLOATS) for each in (left, right)]
            self.builder.store(self.builder.call(function, [self.builder.load(place), *pairs]), place)
            return
        for first, second in zip(self.halves(left), self.halves(right), strict=True):
            self.multiply_add(first, second, place)

    def halves(self, words: Any) -> list[Any]:
        """The lower and the upper bfloat16 of every word as bits of float32."""
        upper = ir.Constant(_INTS, [0xFFFF0000] * LANES)
        shift = ir.Constant(_INTS, [16] * LANES)
        return [self.builder.shl(words, shift), self.builder.and_(words, upper)]


def product_tile(rows: int, *, pairs: bool) -> Callable[..., None]:
    """Compiled for ``rows`` rows: ``f(x, x_stride, w, out, out_stride, steps, fetched)``, addresses and strides in bytes.

    out[r, 0:64] = sum over k of x[r, k] * w[k, 0:64], float32. With ``pairs`` every 32-bit word of ``x`` and ``w`` is two bfloat16 that
    are multiplied each with its like; else it is a float32. ``w`` is [steps, 64] words in one piece. Meanwhile as many bytes at ``fetched``
    are brought into the cache.
    """

    @intrinsic
    def multiply(
        typing_context: Any, x: Any, x_stride: Any, w: Any, out: Any, out_stride: Any, steps: Any, fetched: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, x_stride, w, out, out_stride, steps, fetched = args
            code = _Code(builder)
            vectors = range(TILE_LANES // LANES)
            sums = [[code.zeros() for _ in vectors] for _ in range(rows)]
            starts = [code.address(x, (x_stride, row)) for row in range(rows)]
            add = code.multiply_add_pairs if pairs else code.multiply_add
            with cgutils.for_range(builder, steps) as loop:
                code.fetch(code.address(fetched, (loop.index, FETCHED)))
                values = [code.spread(code.load(code.address(start, (loop.index, 4)), _I32)) for start in starts]
                for vector in vectors:
                    offset = vector * LANES * 4
                    weights = code.load(code.address(w, (loop.index, TILE_LANES * 4), offset), _INTS, align=64)
                    for row in range(rows):
                        add(weights, values[row], sums[row][vector])
            for row in range(rows):
                for vector in vectors:
                    code.store(
                        builder.load(sums[row][vector]), code.address(out, (out_stride, row), vector * LANES * 4)
                    )
            return context.get_dummy_value()

        return types.void(*[types.intp] * 7), generate

    return multiply


def weigh_tile(rows: int, lanes: int, *, pairs: bool) -> Callable[..., None]:
    """Compiled for ``rows`` sums of ``lanes`` columns:
    ``f(weights, weights_stride, index, count, table, table_stride, out, out_stride, fetched)``.

    out[r, 0:lanes] = sum over j < count of weights[r, j] * table[index[j], 0:lanes], float32; ``index`` is int32. With ``pairs`` a word of
    the table is two bfloat16: word i of every 16 holds columns i and 16 + i of its 32. Meanwhile ``count`` times ``FETCHED`` bytes at
    ``fetched`` are brought into the cache.
    """

    @intrinsic
    def weigh(
        typing_context: Any, w: Any, w_stride: Any, i: Any, n: Any, t: Any, t_stride: Any, o: Any, o_stride: Any, f: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            weights, weights_stride, index, count, table, table_stride, out, out_stride, fetched = args
            code = _Code(builder)
            vectors = range(lanes // LANES)
            sums = [[code.zeros() for _ in vectors] for _ in range(rows)]
            starts = [code.address(weights, (weights_stride, row)) for row in range(rows)]
            with cgutils.for_range(builder, count) as loop:
                code.fetch(code.address(fetched, (loop.index, FETCHED)))
                at = builder.sext(code.load(code.address(index, (loop.index, 4)), _I32), _I64)
                line = code.address(table, (at, table_stride))
                shares = [code.spread(code.load(code.address(start, (loop.index, 4)), _I32)) for start in starts]
                values = []
                for vector in range(lanes // LANES // (2 if pairs else 1)):
                    words = code.load(code.address(line, vector * LANES * 4), _INTS)
                    values += code.halves(words) if pairs else [words]
                for vector in vectors:
                    for row in range(rows):
                        code.multiply_add(values[vector], shares[row], sums[row][vector])
            for row in range(rows):
                for vector in vectors:
                    code.store(
                        builder.load(sums[row][vector]), code.address(out, (out_stride, row), vector * LANES * 4)
                    )
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), generate

    return weigh
