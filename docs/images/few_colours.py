"""A picture of a page in few colours: flat areas and text need no more, and the file is a third."""

import base64
import struct
import zlib
from typing import Any

COLOURS = 256
ALIKE = 100
"""Square of the distance of two colours below which one stands for both."""
_COUNT = """
(async (url, most, near) => {
  const image = new Image(); image.src = url; await image.decode();
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const pen = new OffscreenCanvas(width, height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const colours = new Uint32Array(pen.getImageData(0, 0, width, height).data.buffer), count = new Map();
  for (const each of colours) count.set(each, (count.get(each) || 0) + 1);
  const parts = colour => [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
  const far = (a, b) => (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2;
  const palette = [];
  for (const [each] of [...count].sort((a, b) => b[1] - a[1]))
    if (palette.length < most && !palette.some(other => far(other, parts(each)) < near)) palette.push(parts(each));
  const place = new Map([...count.keys()].map(each => {
    const own = parts(each);
    return [each, palette.reduce((best, other, at) => far(other, own) < far(palette[best], own) ? at : best, 0)];
  }));
  let pixels = "";
  for (const each of colours) pixels += String.fromCharCode(place.get(each));
  return {width, height, palette, pixels: btoa(pixels)};
})("%s", %d, %d)
"""


def in_few_colours(browser: Any, png: bytes) -> bytes:
    """The same picture in its most frequent colours that are not alike, the others as the nearest of these.

    `browser` takes it apart.
    """
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    browser.call("Page.navigate", url="about:blank")
    asked = {"expression": _COUNT % (url, COLOURS, ALIKE), "awaitPromise": True, "returnByValue": True}
    found = browser.call("Runtime.evaluate", **asked)["result"]["value"]
    width, height, pixels = found["width"], found["height"], base64.b64decode(found["pixels"])
    rows = b"".join(b"\0" + pixels[at * width : (at + 1) * width] for at in range(height))
    palette = bytes(part for colour in found["palette"] for part in colour)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
