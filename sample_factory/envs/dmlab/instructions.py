"""Instructions in words as tokens."""

import functools
import hashlib

import numpy as np

VOCABULARY_SIZE = 1000
MAX_WORDS = 16
PADDING = 0


@functools.lru_cache(maxsize=10_000)  # an instruction is observed in every step of an episode
def instruction_tokens(text: str) -> np.ndarray:
    """Returns the tokens of the first MAX_WORDS words, int32 [MAX_WORDS], then PADDING; read-only.

    A token is a hash of the word, from 1 to VOCABULARY_SIZE - 1, as in version 1: there is no vocabulary.
    """
    tokens = np.full(MAX_WORDS, PADDING, np.int32)
    words = text.split()[:MAX_WORDS]
    tokens[: len(words)] = [_token(word) for word in words]
    tokens.flags.writeable = False
    return tokens


def _token(word: str) -> int:
    digest = hashlib.md5(word.encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % (VOCABULARY_SIZE - 1) + 1
