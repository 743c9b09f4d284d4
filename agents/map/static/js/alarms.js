// Alarms of estimates: where buses are far slower than expected, as an incident makes them.

import { say } from "./words.js";

export const AREAS = {
  hexagon: say`hexagon`,
  neighbours: say`with neighbours`,
  city: say`whole city`,
};

const SENTENCES = {
  hexagon: say`Alarm: buses in this hexagon are far slower than expected, as in an incident.`,
  neighbours: say`Alarm: buses in this hexagon and those around it are far slower than expected, as in an incident.`,
  city: say`Alarm: buses in the whole city are far slower than expected, as in an incident.`,
};

// The sentence of a record's alarm, or null.
export const alarmOf = (record) => SENTENCES[record?.alarm] ?? null;

// Whether a hexagon has a mark of its own: an alarm of the whole city is one sentence above the map.
export const isMarked = (record) => alarmOf(record) !== null && record.alarm !== "city";

// The sentence of an hour, or "". records: of the hour
export function alarmOfHour(records) {
  const all = [...records.values()];
  if (all.some(({ alarm }) => alarm === "city")) return SENTENCES.city;
  const marked = all.filter(isMarked).length;
  if (marked === 0) return "";
  return marked === 1 ? say`Alarm in 1 hexagon: buses are far slower than expected.` : say`Alarm in ${marked} hexagons: buses are far slower than expected.`;
}
