import numpy as np

from p2pkm.channel.references import References, find_sent
from p2pkm.channel.transform import REFERENCES_AT_BOTH_ENDS, Order, Transform
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import SparseMessages
from p2pkm.core.traits import MessageContent


class HalfPrecision(Transform):
    """Send coordinates as differences from the last table, in 16 bits each."""

    name, order = "half", Order.PERTURB
    acts_on = (MessageContent.CENTROIDS, MessageContent.SUMS)
    incompatible_with = REFERENCES_AT_BOTH_ENDS  # lossy links, changing links, other changes of messages

    @classmethod
    def check(cls, settings, algorithm):
        """Reject methods whose tables cannot be shortened."""
        why = algorithm.traits.incompatible_with.get("quantization")
        if why:
            raise ExperimentError(f"--transforms half cannot be used with {algorithm.name}, which {why}")

    def begin(self, stage, *, closing):
        """Act in the stage of the method, without references at first."""
        self.references = References(skip_selected=True)  # over selected links, the values themselves are sent
        return self if closing else None

    def outgoing(self, messages, context):
        """Round the differences, and declare the bytes of each table."""
        if isinstance(messages, SparseMessages):
            return messages
        first, last = messages.header, messages.header + context.devices.d
        sent, reference = find_sent(messages), self.references.find(messages)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where(sent, messages.values - reference, 0.0)[:, :, first:last].astype(np.float16)
        fits = np.isfinite(difference).all(axis=(1, 2))  # other tables are sent unchanged
        values, rows = messages.values.copy(), np.maximum(messages.rows, 0)
        values[fits, :, first:last] = (reference[:, :, first:last] + difference)[fits]
        numbers = values.shape[2] - first
        wire = 1 + rows * np.where(fits, 8 * numbers - 6 * context.devices.d, 8 * numbers)  # one byte names the format
        messages = messages._replace(values=values, wire=wire)
        self.references.keep(messages)
        return messages
