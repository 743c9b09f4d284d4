// A budget record in words: what a bus's day may lose, and what is spent of it. Sums are in 1e-9, as in the ledger.

import { say } from "./words.js";

const CELLS = "cells"; // the private selection of a list of cells
const CLUSTERING = /^clustering-/;
const TRACKER = "tracker";
const HORIZON = "continual"; // what a continual policy's whole horizon costs, on each of its dates

export const trackerOf = ({ queries = [] }) => queries.find(({ query }) => query === TRACKER);

export const horizonOf = ({ queries = [] }) => queries.find(({ query }) => query === HORIZON);

const nano = (text) => Math.round(Number(text) * 1e9);
export const plain = (text) => String(Number(text)); // "5.0" -> "5"
const fromNano = (amount) => String(amount / 1e9);

const amountOf = ({ epsilon, places }) => nano(epsilon) * Number(places);
const sumOf = (reserved) => reserved.reduce((sum, each) => sum + amountOf(each), 0);

// The parts of a record's day, in epsilon as text: `spent` on releases, `aside` for answers over days, `selection` of
// cells, `clusterings`; and the names of the queries that got no room. spent is null where the record does not have it.
export function partsOf(record) {
  const reserved = (record.queries ?? []).filter(({ query }) => query !== TRACKER);
  const selection = reserved.filter(({ query }) => query === CELLS);
  const clusterings = reserved.filter(({ query }) => CLUSTERING.test(query));
  const horizon = reserved.filter(({ query }) => query === HORIZON);
  const overDays = reserved.filter((each) => ![...selection, ...clusterings, ...horizon].includes(each));
  const tracker = trackerOf(record);
  const booked = nano(record.epsilon_user_day) - sumOf(reserved) - (tracker === undefined ? 0 : amountOf(tracker));
  // What is reserved for a tracker is booked before its first query. A bus loses what its own queries have cost.
  const known = tracker === undefined || record.spent !== undefined;
  const spent = booked + (tracker === undefined || !known ? 0 : nano(record.spent.largest));
  return {
    spent: known ? fromNano(spent) : null,
    lost: known ? fromNano(spent + sumOf(reserved)) : null,
    aside: sumOf(overDays) > 0 ? fromNano(sumOf(overDays)) : null,
    horizon: sumOf(horizon) > 0 ? fromNano(sumOf(horizon)) : null,
    selection: sumOf(selection) > 0 ? fromNano(sumOf(selection)) : null,
    clusterings: sumOf(clusterings) > 0 ? fromNano(sumOf(clusterings)) : null,
    withoutRoom: overDays.filter(({ places }) => Number(places) === 0).map(({ query }) => query),
  };
}

// Sentences about a record. layer: the policy's releases, which show whether it has devices and Gaussian noise.
export function sentencesOf(record, { hasDevices, hasDelta }) {
  const { spent, horizon, aside, selection, clusterings, withoutRoom } = partsOf(record);
  const used = [
    spent === null ? say`how much is spent comes with a later record` : say`spent ${spent}`,
    selection === null ? "" : say`${selection} for the choice of hexagons`,
    clusterings === null ? "" : say`${clusterings} for typical days`,
    aside === null ? "" : say`set aside ${aside} for answers over days`,
  ].filter((each) => each !== "");
  const perDay = horizon !== null
    ? Number(spent) > 0
      ? say`All running means of a horizon may cost a bus ${horizon}; other policies have spent ${spent} of this day.`
      : say`All running means of a horizon may cost a bus ${horizon}.`
    : say`A bus's day may lose ${plain(record.day_bound)}; ${used.join(", ")}.`;
  return [
    ...(record.total === undefined ? [] : [say`All days of a bus together may lose ${plain(record.total_limit)}; spent ${plain(record.total)}.`]),
    perDay,
    ...(withoutRoom.length === 0 ? [] : [say`The limit left no room for ${withoutRoom.join(", ")}.`]),
    ...(hasDevices ? [say`This holds for buses with devices of their own, too.`] : []),
    ...(hasDelta ? [say`The noise is Gaussian: all of it holds with delta ${record.epsilon_delta.delta}.`] : []),
  ];
}
