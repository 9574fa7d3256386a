"""Pictures to an mp4 file, one after another: nothing is held in memory."""

import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

import numpy as np

log = logging.getLogger("sample_factory")

MIN_HEIGHT = 480
# By preference. H.264 plays everywhere, but the OpenCV of PyPI is built without an encoder for it; VP9 plays
# in every browser; MPEG-4 part 2 is for desktop players only.
OPENCV_CODECS = ("avc1", "vp09", "mp4v")
FFMPEG_TIMEOUT_SECONDS = 60.0


class VideoError(RuntimeError):
    """The video could not be written; the message says why."""


class VideoWriter:
    """An mp4 of RGB pictures. Promises:

    1. A file under `path` is complete: it is written under another name, and renamed by `close`.
    2. Pictures of less than 480 rows are enlarged; all are brought to the size of the first.
    """

    def __init__(self, path: Path, pictures_per_second: float):
        self._path, self._rate = path, pictures_per_second
        # The encoders tell the format by the end of the name.
        self._unfinished = path.with_name(f".{path.stem}.unfinished.mp4")
        self._encoder: _Encoder | None = None
        self._size = (0, 0)
        self.num_pictures = 0

    def write(self, picture: np.ndarray) -> None:
        """picture: [height, width, 3] uint8, RGB. Raises VideoError."""
        if self._encoder is None:
            self._size = video_size(picture.shape[0], picture.shape[1])
            self._encoder = _open_encoder(self._unfinished, self._rate, self._size)
        self._encoder.write(resize(picture, self._size))
        self.num_pictures += 1

    def close(self) -> Path | None:
        """Finishes the file and returns its path; None if there were no pictures. Raises VideoError."""
        if self._encoder is None:
            return None
        self._encoder.close()
        self._encoder = None
        if not self._unfinished.exists() or self._unfinished.stat().st_size == 0:
            raise VideoError(f"{self._path} could not be written; is the disk full?")
        os.replace(self._unfinished, self._path)
        return self._path


def video_size(height: int, width: int) -> tuple[int, int]:
    """(width, height) of the video: at least 480 rows, and even, as H.264 and VP9 want."""
    factor = max(1.0, MIN_HEIGHT / height)
    if factor >= 2:
        factor = float(int(-(-MIN_HEIGHT // height)))  # whole: all pixels stay equal
    return round(width * factor / 2) * 2, round(height * factor / 2) * 2


def resize(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The picture in the given (width, height): small pixels stay sharp."""
    import cv2

    height, width = picture.shape[:2]
    if (width, height) == size:
        return np.ascontiguousarray(picture)
    if size[0] < width or size[1] < height:
        return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    is_small = size[1] >= 2 * height
    return cv2.resize(picture, size, interpolation=cv2.INTER_NEAREST if is_small else cv2.INTER_LINEAR)


class _Encoder(Protocol):
    def write(self, picture: np.ndarray) -> None: ...

    def close(self) -> None: ...


def _open_encoder(path: Path, rate: float, size: tuple[int, int]) -> _Encoder:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise VideoError(f"cannot write {path}: {error.strerror}") from None
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is not None and _knows_h264(ffmpeg):
        return _FfmpegEncoder(ffmpeg, path, rate, size)
    return _OpenCvEncoder(path, rate, size)


def _knows_h264(ffmpeg: str) -> bool:
    command = [ffmpeg, "-hide_banner", "-encoders"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return "libx264" in listed.stdout


class _FfmpegEncoder:
    """H.264 by the `ffmpeg` program of this machine."""

    def __init__(self, ffmpeg: str, path: Path, rate: float, size: tuple[int, int]):
        command = [
            ffmpeg, "-y", "-loglevel", "error",
            "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}",
            "-r", f"{rate:.6f}", "-i", "-",
            "-c:v", "libx264", "-preset", "veryfast", "-crf", "20",
            # What browsers play, and can begin to play before they have all of it.
            "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path),
        ]
        self._path = path
        # In a session of its own, so that Ctrl+C reaches only us, who then finish the video.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def write(self, picture: np.ndarray) -> None:
        try:
            self._process.stdin.write(picture.data)
        except OSError as error:
            raise VideoError(f"ffmpeg could not write {self._path}: {error.strerror}") from None

    def close(self) -> None:
        try:
            self._process.stdin.close()
            exit_code = self._process.wait(FFMPEG_TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            self._process.kill()
            raise VideoError(f"ffmpeg could not finish {self._path}: {error}") from None
        if exit_code:
            raise VideoError(f"ffmpeg ended with exit code {exit_code} while writing {self._path}")


class _OpenCvEncoder:
    """The best codec that this OpenCV has."""

    def __init__(self, path: Path, rate: float, size: tuple[int, int]):
        import cv2

        self._cv2 = cv2
        self._writer, codec = _open_writer(path, rate, size)
        if codec == "vp09":
            log.info("Encoding the video in VP9, some 6 pictures a second; with ffmpeg it would be fast")
        elif codec == "mp4v":
            log.warning("The video is MPEG-4 part 2, which browsers do not play; install ffmpeg")

    def write(self, picture: np.ndarray) -> None:
        self._writer.write(self._cv2.cvtColor(picture, self._cv2.COLOR_RGB2BGR))

    def close(self) -> None:
        self._writer.release()


def _open_writer(path: Path, rate: float, size: tuple[int, int]) -> tuple[Any, str]:
    """(cv2.VideoWriter, codec). The only way to find out which codecs there are is to try."""
    import cv2

    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # quiet about codecs that are not there
    logging_of_cv2 = cv2.utils.logging
    level = logging_of_cv2.getLogLevel()
    logging_of_cv2.setLogLevel(logging_of_cv2.LOG_LEVEL_SILENT)
    try:
        for codec in OPENCV_CODECS:
            writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter_fourcc(*codec), rate, size)
            if writer.isOpened():
                return writer, codec
    finally:
        logging_of_cv2.setLogLevel(level)
    raise VideoError(
        f"cannot write {path}: OpenCV has an encoder for none of {', '.join(OPENCV_CODECS)}; install ffmpeg"
    )
