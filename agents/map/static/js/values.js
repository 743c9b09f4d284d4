// What the page shows of a record, be it a release or an estimate.

import { STAGES, STATES } from "./texts.js";

export const isEstimate = (record) => record?.estimate_id !== undefined;

export const slotOf = (record) => `${record.date}T${record.slot}`;

export const policyOf = (record) => (record.estimate_id ?? record.release_id).split("/")[0];

// The value as published, or null: the road's speed of an estimate, the mean of a release.
export const valueOf = (record) => (isEstimate(record) ? record.road.value : (record?.mean ?? null));

export const intervalOf = (record) => (isEstimate(record) ? record.road.interval95 : record?.interval95) ?? null;

export const statusOf = (record) => (isEstimate(record) ? record.stage : record.status);

export const stateOf = (record) =>
  isEstimate(record) ? (STAGES[record.stage] ?? record.stage) : (STATES[record.status] ?? record.status);

export function spanOf(record) {
  const [low, high] = intervalOf(record);
  return `${low} to ${high} ${record.unit ?? ""}`.trim();
}
