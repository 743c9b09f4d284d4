// Shapes of an SVG on a canvas, with the styles that they have on the page, and the page's patterns.

const SHAPES = {
  path: (node) => new Path2D(node.getAttribute("d") ?? ""),
  rect: (node) => {
    const path = new Path2D();
    path.roundRect(node.x.baseVal.value, node.y.baseVal.value, node.width.baseVal.value, node.height.baseVal.value, node.rx.baseVal.value);
    return path;
  },
  circle: (node) => {
    const path = new Path2D();
    path.arc(node.cx.baseVal.value, node.cy.baseVal.value, node.r.baseVal.value, 0, 2 * Math.PI);
    return path;
  },
  line: (node) => new Path2D(`M${node.x1.baseVal.value} ${node.y1.baseVal.value}L${node.x2.baseVal.value} ${node.y2.baseVal.value}`),
  polygon: (node) => new Path2D(`M${node.getAttribute("points")}Z`),
  polyline: (node) => new Path2D(`M${node.getAttribute("points")}`),
};
const TILE = 4; // pixels of a pattern's tile per unit

export function paintShape(context, node, style) {
  const matrix = node.getScreenCTM?.();
  const path = SHAPES[node.localName]?.(node);
  if (path === undefined || matrix === null || matrix === undefined) return;
  context.save();
  context.transform(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f);
  draw(context, path, style);
  context.restore();
}

function draw(context, path, style) {
  const alpha = context.globalAlpha;
  const fill = paintOf(context, style.fill);
  if (fill !== null) {
    context.globalAlpha = alpha * Number(style.fillOpacity);
    context.fillStyle = fill;
    context.fill(path, style.fillRule);
  }
  const [stroke, width] = [paintOf(context, style.stroke), parseFloat(style.strokeWidth)];
  if (stroke !== null && width > 0) {
    context.globalAlpha = alpha * Number(style.strokeOpacity);
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.lineJoin = style.strokeLinejoin;
    context.lineCap = style.strokeLinecap;
    context.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[\s,]+/).map(parseFloat));
    context.stroke(path);
  }
  context.globalAlpha = alpha;
}

function paintOf(context, value) {
  if (value === "none") return null;
  const [, id] = /^url\("?#([^")]+)"?\)/.exec(value) ?? [];
  if (id === undefined) return value;
  const pattern = document.getElementById(id);
  return pattern === null ? null : patternOf(context, pattern);
}

function patternOf(context, node) {
  const tile = document.createElement("canvas");
  tile.width = node.width.baseVal.value * TILE;
  tile.height = node.height.baseVal.value * TILE;
  const inside = tile.getContext("2d");
  inside.scale(TILE, TILE);
  for (const shape of node.children) draw(inside, SHAPES[shape.localName](shape), getComputedStyle(shape));
  const pattern = context.createPattern(tile, "repeat");
  const { a, b, c, d, e, f } = node.patternTransform.baseVal.consolidate()?.matrix ?? new DOMMatrix();
  pattern.setTransform(new DOMMatrix([a, b, c, d, e, f]).scale(1 / TILE));
  return pattern;
}
