"""Writes pictures to an mp4 file one by one, without holding them in memory."""

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sample_factory.runtime.failures import CommandFailed

MIN_HEIGHT = 480
FLOAT_ERROR = 1e-3  # by which floats of a picture may be outside of 0 to 1, after arithmetic


class VideoError(CommandFailed):
    """Raised if a video cannot be written; the message gives the reason."""


class VideoWriter:
    """Writes RGB pictures to an mp4 file.

    1. A file at `path` is complete: it is written under another name, and renamed by `close`.
    2. No file is overwritten: if `path` exists, a number is added to the name, e.g. replay_1.mp4.
    3. Pictures of less than 480 rows are enlarged; all pictures are scaled to the size of the first one.
    """

    def __init__(self, path: Path, pictures_per_second: float):
        self._path = path
        self._rate = pictures_per_second
        # With the process id: two programs may write videos into one folder.
        self._unfinished = path.with_name(f".{path.stem}.{os.getpid()}.unfinished.mp4")
        self._size = (0, 0)
        self._container: Any = None  # of the libraries of FFmpeg; None before the first picture
        self.num_pictures = 0

    def write(self, picture: np.ndarray) -> None:
        """Appends a picture, [height, width, 3] uint8, RGB. Raises VideoError if the file cannot be
        written."""
        from av import VideoFrame

        if self._container is None:
            self._open(video_size(picture.shape[0], picture.shape[1]))
        self._encode(VideoFrame.from_ndarray(resize(picture, self._size), format="rgb24"))
        self.num_pictures += 1

    @property
    def seconds(self) -> float:
        """Length of the video so far in seconds."""
        return self.num_pictures / self._rate

    def close(self) -> Path | None:
        """Finishes the file and returns its path; None if there were no pictures. Raises VideoError if the
        file cannot be written, e.g. on a full disk."""
        if self._container is None:
            return None
        self._encode(None)  # the frames that the encoder still holds
        self._container.close()
        self._container = None
        if not self._unfinished.exists() or self._unfinished.stat().st_size == 0:
            raise VideoError(f"{self._path} could not be written; is the disk full?")
        path = self._path
        number = 0
        while path.exists():
            number += 1
            path = self._path.with_name(f"{self._path.stem}_{number}{self._path.suffix}")
        os.replace(self._unfinished, path)
        return path

    def _open(self, size: tuple[int, int]) -> None:
        """Creates the file: H.264 in mp4, which common players and browsers support. Raises VideoError if it
        cannot be created. size: (width, height)."""
        import av

        try:
            self._unfinished.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished.unlink(missing_ok=True)  # whatever lies there: a named pipe would never open
            # The index is at the start, so that a browser can play before it has the whole file.
            options = {"movflags": "+faststart"}
            self._container = av.open(str(self._unfinished), "w", format="mp4", options=options)
        except OSError as error:
            raise VideoError(f"cannot write {self._unfinished}: {error}") from None
        self._size = size
        rate = Fraction(self._rate).limit_denominator(1000)
        self._stream = self._container.add_stream("libx264", rate=rate)
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "yuv420p"
        self._stream.options = {"preset": "superfast", "crf": "21"}

    def _encode(self, frame: Any) -> None:
        try:
            self._container.mux(self._stream.encode(frame))
        except OSError as error:
            raise VideoError(f"cannot write {self._unfinished}: {error}") from None


def to_rgb(picture: Any) -> np.ndarray:
    """Converts the value that an env's `render()` returned to a picture, [height, width, 3] uint8.
    picture: [height, width], or with 1, 3 or 4 channels; the fourth is dropped. Numbers are integers of
        any dtype from 0 to 255, floats from 0 to 1, or bools. Raises ValueError for anything else."""
    array = np.asarray(picture)
    shape = array.shape
    is_picture = len(shape) in (2, 3) and 0 not in shape and shape[2:] in ((), (1,), (3,), (4,))
    if not is_picture or array.dtype.kind not in "buif":
        returned = f"{array.dtype} {list(shape)}"
        raise ValueError(f"its render() returned {returned}; it should be uint8 [height, width, 3]")
    if array.dtype != np.uint8:
        array = _to_bytes(array)
    if shape[2:] in ((), (1,)):
        return np.repeat(array.reshape(*shape[:2], 1), 3, axis=2)
    return array if shape[2] == 3 else np.ascontiguousarray(array[:, :, :3])


def _to_bytes(array: np.ndarray) -> np.ndarray:
    """Scales the numbers of a picture to uint8, 0 to 255. Raises ValueError if they are outside of the range
    of their dtype, 0..1 or 0..255, so that it is unclear which number is white."""
    is_float = array.dtype.kind == "f"
    white = 1 if array.dtype.kind in "bf" else 255
    error = FLOAT_ERROR if is_float else 0.0
    darkest, brightest = float(array.min()), float(array.max())
    if not -error <= darkest <= brightest <= white + error:
        raise ValueError(
            f"its render() returned {array.dtype} {list(array.shape)} with numbers from {darkest:g} to "
            f"{brightest:g}; it should be uint8 [height, width, 3], or floats from 0 to 1"
        )
    scaled = np.clip(array.astype(np.float32), 0, white) * (255 / white)
    return np.rint(scaled).astype(np.uint8)


def video_size(height: int, width: int) -> tuple[int, int]:
    """Returns (width, height) of a video of pictures of this size: at least 480 rows, and even numbers, which
    H.264 requires."""
    factor = max(1.0, MIN_HEIGHT / height)
    if factor >= 2:
        factor = float(int(-(-MIN_HEIGHT // height)))  # a whole factor makes all pixels equally large
    return round(width * factor / 2) * 2, round(height * factor / 2) * 2


def resize(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scales a picture to `size`, (width, height). If the height grows twofold or more, pixels keep sharp
    edges."""
    import cv2

    height, width = picture.shape[:2]
    if (width, height) == size:
        return np.ascontiguousarray(picture)
    if size[0] < width or size[1] < height:
        return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    is_small = size[1] >= 2 * height
    return cv2.resize(picture, size, interpolation=cv2.INTER_NEAREST if is_small else cv2.INTER_LINEAR)
