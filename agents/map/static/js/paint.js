// Draws a part of the page on a canvas, as it is shown: HTML, SVG, canvases and images. Nothing is loaded for it.
// An SVG in an image would need data: or blob: in the content security policy, so shapes are drawn one by one.

import { paintShape } from "./paint_shapes.js";

const LEFT_OUT = ["unseen", "leaflet-control-zoom", "leaflet-tooltip-pane"]; // of no use in a picture
const HALO = 3; // px, of a text's outline

// Draw a node and all inside of it. left, top: place of the canvas' current origin on the screen, px.
export function paint(context, node, { left, top }) {
  context.save();
  context.translate(-left, -top);
  const { left: x, top: y, width, height } = node.getBoundingClientRect();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  paintNode(context, node);
  context.restore();
}

function paintNode(context, node) {
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden" || LEFT_OUT.some((name) => node.classList.contains(name))) return;
  context.save();
  context.globalAlpha *= Number(style.opacity);
  if (node instanceof SVGElement && !(node instanceof SVGSVGElement)) paintShape(context, node, style);
  else paintBox(context, node, style);
  for (const child of ordered(node)) {
    if (child instanceof Text) paintText(context, child, style);
    else if (child instanceof Element && child.localName !== "defs") paintNode(context, child);
  }
  context.restore();
}

// The panes of the map overlap by their z-index.
function ordered(node) {
  const depth = (child) => (child instanceof HTMLElement ? Number(getComputedStyle(child).zIndex) || 0 : 0);
  return [...node.childNodes].map((child) => [depth(child), child]).sort(([one], [other]) => one - other).map(([, child]) => child);
}

function paintBox(context, node, style) {
  const { left, top, width, height } = node.getBoundingClientRect();
  if (width === 0 || height === 0) return;
  context.fillStyle = style.backgroundColor;
  context.beginPath();
  context.roundRect(left, top, width, height, parseFloat(style.borderTopLeftRadius) || 0);
  context.fill();
  const isPicture = node instanceof HTMLCanvasElement || (node instanceof HTMLImageElement && node.complete && node.naturalWidth > 0);
  if (isPicture) context.drawImage(node, left, top, width, height);
  const sides = { Top: [left, top, width, 0], Right: [left + width, top, 0, height], Bottom: [left, top + height, width, 0], Left: [left, top, 0, height] };
  for (const [side, [x, y, right, down]] of Object.entries(sides)) {
    const thickness = parseFloat(style[`border${side}Width`]);
    if (thickness > 0) line(context, [x, y, x + right, y + down], thickness, style[`border${side}Color`]);
  }
}

function line(context, [x1, y1, x2, y2], width, colour) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke();
}

// Word by word, each where the browser has set it.
function paintText(context, node, style) {
  const isSvg = node.parentNode instanceof SVGElement;
  const halo = isSvg ? style.stroke : /rgba?\([^)]*\)/.exec(style.textShadow)?.[0];
  context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.letterSpacing = style.letterSpacing === "normal" ? "0px" : style.letterSpacing;
  context.textBaseline = "alphabetic";
  context.lineJoin = "round";
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const { left, top, width, height } = range.getBoundingClientRect();
    if (width === 0) continue;
    const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = context.measureText(word);
    const base = top + (height + above - below) / 2;
    if (halo !== undefined && halo !== "none") {
      context.lineWidth = isSvg ? parseFloat(style.strokeWidth) : HALO;
      context.strokeStyle = halo;
      context.strokeText(word, left, base);
    }
    context.fillStyle = isSvg ? style.fill : style.color;
    context.fillText(word, left, base);
  }
}
