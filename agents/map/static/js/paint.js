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
  const opacity = Number(style.opacity);
  if (opacity === 1) return paintOpaque(context, node, style);
  // Parts that overlap are seen through together, so they are drawn apart first.
  const layer = document.createElement("canvas");
  [layer.width, layer.height] = [context.canvas.width, context.canvas.height];
  const inside = layer.getContext("2d");
  inside.setTransform(context.getTransform());
  paintOpaque(inside, node, style);
  context.save();
  context.resetTransform();
  context.globalAlpha *= opacity;
  context.drawImage(layer, 0, 0);
  context.restore();
}

function paintOpaque(context, node, style) {
  if (node instanceof SVGElement && !(node instanceof SVGSVGElement)) paintShape(context, node, style);
  else paintBox(context, node, style);
  for (const child of ordered(node)) {
    if (child instanceof Text) paintText(context, child, style);
    else if (child instanceof Element && child.localName !== "defs") paintNode(context, child);
  }
}

// The panes and controls of the map overlap by their z-index; a node without one has the highest of its children.
const depth = (node) => {
  if (!(node instanceof HTMLElement)) return 0;
  const { zIndex } = getComputedStyle(node);
  return zIndex === "auto" ? Math.max(0, ...[...node.children].map((child) => Number(getComputedStyle(child).zIndex) || 0)) : Number(zIndex);
};

function ordered(node) {
  return [...node.childNodes].map((child) => [depth(child), child]).sort(([one], [other]) => one - other).map(([, child]) => child);
}

function paintBox(context, node, style) {
  const { left, top, width, height } = node.getBoundingClientRect();
  if (!(width > 0 && height > 0)) return;
  context.fillStyle = style.backgroundColor;
  context.beginPath();
  const radius = parseFloat(style.borderTopLeftRadius) || 0;
  context.roundRect(left, top, width, height, radius);
  context.fill();
  const isPicture = node instanceof HTMLCanvasElement || (node instanceof HTMLImageElement && node.complete && node.naturalWidth > 0);
  if (isPicture) context.drawImage(node, left, top, width, height);
  const around = parseFloat(style.borderTopWidth);
  if (radius > 0 && around > 0 && style.borderWidth === style.borderTopWidth) {
    context.lineWidth = around;
    context.strokeStyle = style.borderTopColor;
    context.stroke();
    return;
  }
  const thickness = (side) => parseFloat(style[`border${side}Width`]) || 0;
  const sides = {
    Top: [left, top, width, thickness("Top")],
    Right: [left + width - thickness("Right"), top, thickness("Right"), height],
    Bottom: [left, top + height - thickness("Bottom"), width, thickness("Bottom")],
    Left: [left, top, thickness("Left"), height],
  };
  for (const [side, box] of Object.entries(sides)) {
    if (thickness(side) === 0) continue;
    context.fillStyle = style[`border${side}Color`];
    context.fillRect(...box);
  }
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
