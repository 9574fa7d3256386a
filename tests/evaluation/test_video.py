import cv2
import numpy as np
import pytest

from sample_factory.evaluation.video import VideoError, VideoWriter, to_rgb, video_size


def picture(height, width, brightness):
    """Red on the left, blue on the right."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[:, : width // 2, 0] = brightness
    rgb[:, width // 2 :, 2] = brightness
    return rgb


def write(path, pictures):
    writer = VideoWriter(path, 10)
    for rgb in pictures:
        writer.write(rgb)
    return writer.close()


def read(path):
    """RGB pictures."""
    capture = cv2.VideoCapture(str(path))
    pictures = []
    while (found := capture.read())[0]:
        pictures.append(cv2.cvtColor(found[1], cv2.COLOR_BGR2RGB))
    return pictures


def test_what_was_written_can_be_read(tmp_path):
    path = write(tmp_path / "a.mp4", [picture(120, 160, 25 * i) for i in range(1, 9)])
    pictures = read(path)
    assert len(pictures) == 8
    for i, rgb in enumerate(pictures, start=1):
        assert rgb.shape == (480, 640, 3)
        assert np.abs(rgb[100, 100].astype(int) - [25 * i, 0, 0]).max() < 16
        assert np.abs(rgb[100, 500].astype(int) - [0, 0, 25 * i]).max() < 16


def test_the_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a.mp4"
    writer = VideoWriter(path, 10)
    writer.write(picture(480, 640, 200))
    assert not path.exists()
    assert writer.close() == path
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]
    assert len(read(path)) == 1


def test_an_existing_file_stays_and_the_new_one_is_numbered(tmp_path):
    for name in ("a.mp4", "a_1.mp4"):
        (tmp_path / name).write_text("a video before")
    path = write(tmp_path / "a.mp4", [picture(480, 640, 9)])
    assert path == tmp_path / "a_2.mp4" and len(read(path)) == 1
    assert (tmp_path / "a.mp4").read_text() == "a video before"


def test_without_pictures_there_is_no_file(tmp_path):
    assert VideoWriter(tmp_path / "a.mp4", 10).close() is None
    assert not list(tmp_path.iterdir())


def test_all_pictures_get_the_size_of_the_first(tmp_path):
    path = write(tmp_path / "a.mp4", [picture(480, 640, 99), picture(100, 100, 99), picture(1000, 900, 99)])
    assert [rgb.shape for rgb in read(path)] == [(480, 640, 3)] * 3


@pytest.mark.parametrize(
    "height, width, expected",
    [
        (120, 160, (640, 480)),
        (72, 128, (896, 504)),
        (400, 600, (720, 480)),
        (501, 333, (332, 500)),
        (1, 1, (480, 480)),
    ],
)
def test_sizes_are_even_and_at_least_480_high_and_small_pixels_stay_equal(height, width, expected):
    assert video_size(height, width) == expected


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(VideoError, match="cannot write"):
        VideoWriter(tmp_path / "file" / "a.mp4", 10).write(picture(480, 640, 9))


BYTES = np.arange(6 * 8 * 3).reshape(6, 8, 3)


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (BYTES.astype(np.int64), BYTES),
        (BYTES.astype(np.uint16), BYTES),
        ((BYTES % 128).astype(np.int8), BYTES % 128),
        (BYTES / 255, BYTES),
        ((BYTES / 255).astype(np.float32), BYTES),
        ((BYTES / 255).astype(np.float16), BYTES),
        (BYTES / 143 * 1.0005, np.rint(np.minimum(BYTES / 143 * 1.0005, 1) * 255)),
        (BYTES % 2 == 1, BYTES % 2 * 255),
        ((BYTES[..., 0] / 255), np.repeat(BYTES[..., :1], 3, axis=2)),
        (np.dstack([BYTES, np.full((6, 8), 7)]), BYTES),
        (BYTES.tolist(), BYTES),
    ],
)
def test_pictures_of_any_dtype_are_bytes_of_the_same_brightness(drawn, expected):
    picture = to_rgb(drawn)
    assert picture.dtype == np.uint8 and picture.shape == (6, 8, 3)
    assert np.abs(picture.astype(int) - expected).max() == 0


@pytest.mark.parametrize(
    ("drawn", "reason"),
    [
        (BYTES.astype(float), "float64 .6, 8, 3. with numbers from 0 to 143"),
        (BYTES - 1, "numbers from -1 to 142"),
        ((BYTES * 200).astype(np.uint16), "numbers from 0 to 28600"),
        (np.full((6, 8, 3), np.nan), "numbers from nan to nan"),
        (BYTES.astype(complex), "returned complex128"),
        (BYTES.astype(object), "returned object"),
        (BYTES[:0], "returned int64 .0, 8, 3."),
        (BYTES[None], "returned int64 .1, 6, 8, 3."),
        (np.uint8(BYTES[..., :2]), "returned uint8 .6, 8, 2."),
    ],
)
def test_a_picture_whose_white_is_unknown_is_refused(drawn, reason):
    with pytest.raises(ValueError, match=rf"{reason}.*it should be uint8 \[height, width, 3\]"):
        to_rgb(drawn)
