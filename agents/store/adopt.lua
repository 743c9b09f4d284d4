-- Take back records that stand on the output topics but not here: this Redis has lost them.    [design 4, Proven]
-- KEYS  1 releases, 2 ledger (of one domain and date), 3 costs, 4 levels (of one policy too), 5 dates, 6 total,
--       7 last dates
-- ARGV  1 date, 2 policy name, 3 the records (msgpack), each: release_id, cell/slot, charge (1e-9, text), seq, how fine
--       its noise is, the record itself; 2,000 at most, since a call takes 8,000 values
-- Returns how many were missing, then the release_ids that have other bytes here: supersede.lua deals with those.
-- In bulk, because a handful of commands for each record would take five times as long.
local name, records, ids = ARGV[2], cmsgpack.unpack(ARGV[3]), {}
for i, record in ipairs(records) do ids[i] = record[1] end
fetch(KEYS[1], ids)
local lost, found = 0, {0}
local charges, spent, fineness, seq = {}, ZERO, {}, 0
for _, record in ipairs(records) do
  local id, place, charge, bytes = record[1], record[2], amount(record[3], KEYS[1]), record[6]
  local here = get(KEYS[1], id)
  if not here then
    lost = lost + 1
    set(KEYS[1], id, bytes)
    if ZERO < charge then
      charges[#charges + 1] = {place, charge}
      spent = spent + charge
      fineness[record[5]] = (fineness[record[5]] or 0) + 1
    end
  elseif here ~= bytes then
    found[#found + 1] = id
  end
  seq = math.max(seq, record[4])
end
-- Numbers that were given out are not given out again.
if seq > number(KEYS[2], 'commits:' .. name) then store(KEYS[2], 'commits:' .. name, seq) end
if lost > 0 then
  found[1] = lost
  increase(KEYS[2], 'sequence', lost)
  join(KEYS[5], ARGV[1])
  later(KEYS[7], name, ARGV[1])
end
if #charges > 0 then
  book_all(KEYS[3], KEYS[4], charges)
  increase(KEYS[2], 'releases:' .. name, #charges)
  grow(KEYS[2], 'epsilon:' .. name, spent)
  for fine, times in pairs(fineness) do increase(KEYS[2], 'fineness:' .. name .. ':' .. fine, times) end
  -- The cap may be lost too: until recall.lua brings it back, every charge counts.
  settle(KEYS[2], KEYS[6], name, cost_of_day(KEYS[2], name, levels_in(KEYS[4]), cap_of(KEYS[2], name)))
end
return written(found)
