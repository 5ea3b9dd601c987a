"""Arithmetic encoder and decoder of the adaptive code: messages of the computed lengths can be decoded."""

from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from math import comb


class Coder:
    """Arithmetic encoder or decoder with exact fractions and adaptive contexts.

    The state is an interval in [0, 1) that shrinks with every symbol, and the counts of each context. To decode, pass
    None for the symbols of all methods.

    Parameters
    ----------
    bits : str, optional
        Message to decode; None: encode.
    """

    def __init__(self, bits: str | None = None) -> None:
        self.low = Fraction(0)
        self.size = Fraction(1)
        self._counts: defaultdict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
        self._value = None if bits is None else Fraction(int(bits, 2), 1 << len(bits))

    def _pick(self, sizes: list[int], symbol: int | None) -> int:
        """Return the symbol to encode, or decode the next symbol."""
        if self._value is None:
            if symbol is None:
                raise ValueError("symbol is None; expected an integer to encode")
            return symbol
        place = (self._value - self.low) / self.size * sum(sizes)
        index, end = 0, sizes[0]
        while place >= end:
            index += 1
            end += sizes[index]
        return index

    def _code(self, sizes: list[int], symbol: int | None) -> int:
        """Shrink the interval to the part of a symbol, and return the symbol; the sizes of parts have any unit."""
        # Integers as long as possible: fractions are reduced after every operation.
        index, total = self._pick(sizes, symbol), sum(sizes)
        self.low += self.size * Fraction(sum(sizes[:index]), total)
        self.size *= Fraction(sizes[index], total)
        return index

    def split(self, context: Hashable, count: int, yeses: int | None) -> int:
        """Code the number of yeses among `count` unordered decisions of a context."""
        before = self._counts[context]
        sizes = []
        for number in range(count + 1):
            size = comb(count, number)
            for answers, old in ((count - number, before[0]), (number, before[1])):
                for more in range(answers):
                    size *= 2 * (old + more) + 1
            sizes.append(size)
        coded = self._code(sizes, yeses)
        before[0] += count - coded
        before[1] += coded
        return coded

    def plain(self, bits: int, number: int | None) -> int:
        """Code an integer of `bits` bits, with equal probabilities."""
        coded = 0
        for level in range(bits - 1, -1, -1):
            bit = None if number is None else (number >> level) & 1
            coded = 2 * coded + self._code([1, 1], bit)
        return coded

    def count(self, number: int | None) -> int:
        """Code an integer of at least 0 of unknown size: Elias gamma code of the integer plus 1."""
        length = 0
        while self.plain(1, None if number is None else int((number + 1).bit_length() > length + 1)):
            length += 1
        return (1 << length) + self.plain(length, None if number is None else (number + 1) - (1 << length)) - 1

    def bounded(self, context: Hashable, width: int, number: int | None) -> int:
        """Code an integer below 2^width."""
        coded = 0
        for level in range(width - 1, -1, -1):
            bit = None if number is None else (number >> level) & 1
            coded = 2 * coded + self.split((context, level, coded), 1, bit)
        return coded

    def unbounded(self, context: Hashable, number: int | None) -> int:
        """Code a signed integer without bound."""
        size = None if number is None else abs(number)
        length = 0
        while self.split((context, length), 1, None if size is None else int(size.bit_length() > length)):
            length += 1
        if not length:
            return 0
        below = self.plain(length - 1, None if size is None else size - (1 << (length - 1)))
        sign = self.plain(1, None if number is None else int(number < 0))
        return -(below + (1 << (length - 1))) if sign else below + (1 << (length - 1))

    def unordered(self, context: Hashable, width: int, numbers: list[int] | int) -> list[int]:
        """Code unordered integers below 2^width; to decode, pass their number. Return them in ascending order."""
        if isinstance(numbers, int):
            return self._branch(context, width, numbers, None, 0)
        return self._branch(context, width, len(numbers), numbers, 0)

    def _branch(self, context: Hashable, width: int, count: int, numbers: list[int] | None, top: int) -> list[int]:
        """Code the integers whose leading bits are `top`."""
        if not count or not width:
            return [top] * count
        level = width - 1
        upper = None if numbers is None else [number for number in numbers if (number >> level) & 1]
        lower = None if numbers is None else [number for number in numbers if not (number >> level) & 1]
        yeses = self.split((context, level, top), count, None if upper is None else len(upper))
        return self._branch(context, level, count - yeses, lower, 2 * top) + self._branch(
            context, level, yeses, upper, 2 * top + 1
        )

    def finish(self, bits: int) -> str:
        """Return the message as text of 0 and 1, with enough bits to decode it."""
        number = -(-(self.low.numerator << bits) // self.low.denominator)
        if Fraction(number + 1, 1 << bits) > self.low + self.size:
            raise ValueError(f"bits is {bits}; expected enough bits for the encoded symbols")
        return f"{number:0{bits}b}"
