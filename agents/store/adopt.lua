-- Take back records that stand on the output topics but not here: this Redis has lost them.    [design 4, Proven]
-- KEYS  1 releases, 2 ledger (of one domain and date), 3 costs, 4 levels (of one policy too), 5 dates, 6 total,
--       7 last dates
-- ARGV  1 date, 2 policy name, 3 the records (msgpack), each: release_id, cell/slot, charge (1e-9, text), seq, how fine
--       its noise is, the record itself; 2,000 at most, since a call takes 8,000 values
-- Returns how many were missing, then the release_ids that have other bytes here: supersede.lua deals with those.
-- In bulk, because a handful of commands for each record would take five times as long.
local name, records, ids = ARGV[2], cmsgpack.unpack(ARGV[3]), {}
for i, record in ipairs(records) do ids[i] = record[1] end
local known, taken, lost, found = redis.call('HMGET', KEYS[1], unpack(ids)), {}, {}, {0}
local charges, counts, fineness, seq = {}, {}, {}, 0
for i, record in ipairs(records) do
  local id, place, charge, bytes = record[1], record[2], record[3], record[6]
  local here = known[i] or taken[id]
  if not here then
    taken[id] = bytes
    lost[#lost + 1], lost[#lost + 2] = id, bytes
    if charge ~= '0' then
      charges[#charges + 1] = {place, charge}
      counts[charge] = (counts[charge] or 0) + 1
      fineness[record[5]] = (fineness[record[5]] or 0) + 1
    end
  elseif here ~= bytes then
    found[#found + 1] = id
  end
  seq = math.max(seq, record[4])
end
-- Numbers that were given out are not given out again.
if seq > tonumber(redis.call('HGET', KEYS[2], 'commits:' .. name) or '0') then
  redis.call('HSET', KEYS[2], 'commits:' .. name, text(seq))
end
if #lost > 0 then
  found[1] = #lost / 2
  redis.call('HSET', KEYS[1], unpack(lost))
  redis.call('HINCRBY', KEYS[2], 'sequence', found[1])
  redis.call('SADD', KEYS[5], ARGV[1])
  later(KEYS[7], name, ARGV[1])
end
if #charges > 0 then
  book_all(KEYS[3], KEYS[4], charges)
  redis.call('HINCRBY', KEYS[2], 'releases:' .. name, #charges)
  for charge, number in pairs(counts) do multiply(KEYS[2], 'epsilon:' .. name, charge, number) end
  for fine, number in pairs(fineness) do redis.call('HINCRBY', KEYS[2], 'fineness:' .. name .. ':' .. fine, number) end
  -- The cap may be lost too: until recall.lua brings it back, every charge counts.
  local cap = redis.call('HGET', KEYS[2], 'cap:' .. name) or ''
  settle(KEYS[2], KEYS[6], name, cost_of_day(KEYS[2], name, levels_in(KEYS[4]), cap))
end
return found
