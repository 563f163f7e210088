// A logarithmic scale of colours that people with any colour vision can read: viridis, by a fitted polynomial
// (Matt Zucker, CC0).

const C = [
  [0.2777273272234177, 0.005407344544966578, 0.3340998053353061],
  [0.1050930431085774, 1.404613529898575, 1.384590162594685],
  [-0.3308618287255563, 0.214847559468213, 0.09509516302823659],
  [-4.634230498983486, -5.799100973351585, -19.33244095627987],
  [6.228269936347081, 14.17993336680509, 56.69055260068105],
  [4.776384997670288, -13.74514537774601, -65.35303263337234],
  [-5.435455855934631, 4.645852612178535, 26.3124352495832],
] as const;

export type Colour = readonly [number, number, number];

function viridis(share: number): Colour {
  const channel = (index: 0 | 1 | 2): number => {
    let value = 0;
    for (const coefficients of [...C].reverse()) value = value * share + coefficients[index];
    return Math.round(255 * Math.min(1, Math.max(0, value)));
  };
  return [channel(0), channel(1), channel(2)];
}

const TABLE: Colour[] = Array.from({ length: 256 }, (_, index) => viridis(index / 255));

/** Least value that has a colour of its own, as a share of the greatest: five decades. */
const DECADES = 5;

/** From a value to its place on the scale, 0 to 1. */
function place(value: number, greatest: number): number {
  if (value <= 0 || greatest <= 0) return 0;
  return Math.min(1, Math.max(0, 1 + Math.log10(value / greatest) / DECADES));
}

/** The number of a value's colour, greater for greater values: 0 is that of nothing, and of nothing else. */
export function shade(value: number, greatest: number): number {
  return value <= 0 ? 0 : Math.max(1, Math.round(place(value, greatest) * 255));
}

/** The colours as pixels of an image, by their numbers. */
export const PALETTE = new Uint32Array(
  new Uint8ClampedArray(TABLE.flatMap(([red, green, blue]) => [red, green, blue, 255])).buffer,
);

export function at(share: number): Colour {
  return TABLE[Math.round(Math.min(1, Math.max(0, share)) * 255)] ?? [0, 0, 0];
}

/** Values where the scale has a mark. */
export function marks(greatest: number): { value: number; share: number }[] {
  return [0, 1, 2, 3, 4, 5].map((decade) => ({
    value: greatest * 10 ** (decade - DECADES),
    share: decade / DECADES,
  }));
}
