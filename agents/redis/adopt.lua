-- Adopt consecutive records of one output partition, and store the new adopted position.
-- KEYS  1 recovery, 2 adopted, 3 oldest, 4 sealed, 5 dates, 6 total, 7 last dates (of the domain), then for each group of
--       records, which are those of one policy and date: releases, published, ledger, costs, levels, unsealed dates, seen,
--       horizons
-- ARGV  1 2 a field of the recovery and its required value: the token of a finished recovery, or of one in progress;
--       3 `topic/partition`, 4 5 its adopted position before ('' for none) and after; 6 the groups (msgpack): policy
--       name, date, the first offset (text), the greatest seq, and the records (none for a day with only budget records):
--       release_id, the SHA-1 of its bytes, and if it is to be written also cell/slot, charge (1e-9, text), fineness of
--       its noise, the bytes, 1 if Kafka has committed it, and the first date of its horizon ('' unless it is a running
--       sum). 1,000 records at most, since Lua's unpack takes 8,000 values
-- Returns {"OK"}, or without any write: {"ended"}, the recovery is no longer the required one; {"moved", position},
-- another worker has adopted these records; {"missing", number of missing ids, those ids, then the ids that have other
-- bytes here}; "damaged", "overflow": see staging.lua.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return {'ended'} end
local stored = redis.call('HGET', KEYS[2], ARGV[3]) or ''
if stored ~= ARGV[4] then return {'moved', stored} end

local groups = {}
for g, group in ipairs(cmsgpack.unpack(ARGV[6])) do
  local name, date, records = group[1], group[2], group[5]
  local sealed = redis.call('HGET', KEYS[4], name)
  -- The summary of a sealed day already includes its records.
  if not (sealed and date <= sealed) then
    local at = 8 + (g - 1) * 8
    groups[#groups + 1] = {
      name = name, date = date, first = group[3], seq = group[4], records = records,
      releases = KEYS[at], published = KEYS[at + 1], ledger = KEYS[at + 2], costs = KEYS[at + 3], levels = KEYS[at + 4],
      unsealed = KEYS[at + 5], seen = KEYS[at + 6], horizons = KEYS[at + 7],
    }
  end
end

local missing, different = {}, {}
for _, group in ipairs(groups) do
  local ids, given = {}, {}
  for i, record in ipairs(group.records) do ids[i] = record[1] end
  group.new = {}
  prefetch(group.releases, ids)
  for _, record in ipairs(group.records) do
    local id, known = record[1], get(group.releases, record[1])
    local here = known and redis.sha1hex(known) or given[id]
    if not here and not record[3] then
      missing[#missing + 1] = id
    elseif not here then
      given[id] = record[2]
      group.new[#group.new + 1] = record
    elseif here ~= record[2] then
      different[#different + 1] = id
    end
  end
end
if #missing + #different > 0 then
  local found = {'missing', #missing}
  for _, id in ipairs(missing) do found[#found + 1] = id end
  for _, id in ipairs(different) do found[#found + 1] = id end
  return found
end

for _, group in ipairs(groups) do
  local name, ledger, releases = group.name, group.ledger, group.releases
  -- The first record of a day, which its seal will contain. In a recreated topic the offsets start again.
  local oldest, id = ARGV[3] .. ' ' .. group.date .. ' ' .. name, string.match(ARGV[5], '^(.*:)%d+$')
  if string.match(get(KEYS[3], oldest) or '', '^(.*:)%d+$') ~= id then set(KEYS[3], oldest, id .. group.first) end
  local charges, spent, fineness = {}, ZERO, {}
  for _, record in ipairs(group.new) do
    local place, charge, fine = record[3], amount(record[4], releases), record[5]
    set(releases, record[1], record[6])
    if record[7] == 1 then add_member(group.published, record[1]) end
    -- The state after it is lost too: what follows would be drawn anew from an older one.
    if record[8] ~= '' then close_horizon(group.horizons, record[8], 'incomplete') end
    if ZERO < charge then
      charges[#charges + 1] = {place, charge}
      spent = spent + charge
      fineness[fine] = (fineness[fine] or 0) + 1
    end
  end
  -- A record on a topic may have been read, even if Kafka has not committed it: no recovery discards it.
  local ids = {}
  for i, record in ipairs(group.records) do ids[i] = record[1] end
  for i, published in ipairs(#ids > 0 and run_read('SMISMEMBER', group.published, unpack(ids)) or {}) do
    if published == 0 and group.records[i][7] ~= 1 then add_member(group.seen, ids[i]) end
  end
  if #group.new > 0 then
    add_member(KEYS[5], group.date)
    add_member(group.unsealed, group.date)
    raise_last_date(KEYS[7], name, group.date)
  end
  -- Assigned numbers are not assigned again, though not all records contain theirs. A release may also have been sent
  -- without its budget record, while commits with smaller numbers were lost unsent: so the day's number is at least the
  -- sum of its policies' numbers. It is raised to that sum, not incremented: restore_budget.lua may have raised it.
  local commits = math.max(group.seq, redis.call('HLEN', releases) + #group.new)
  if commits > get_number(ledger, 'commits:' .. name) then set_number(ledger, 'commits:' .. name, commits) end
  local numbered = 0
  for field, value in pairs(fields_of(ledger)) do
    if value and string.sub(field, 1, 8) == 'commits:' then numbered = numbered + parse_integer(value, ledger) end
  end
  if numbered > get_number(ledger, 'sequence') then set_number(ledger, 'sequence', numbered) end
  if #charges > 0 then
    book_all(group.costs, group.levels, charges)
    increase(ledger, 'releases:' .. name, #charges)
    add_amount(ledger, 'epsilon:' .. name, spent)
    for fine, times in pairs(fineness) do increase(ledger, 'fineness:' .. name .. ':' .. fine, times) end
    -- The cap may be lost too: until restore_budget.lua restores it, every charge counts.
    set_policy_cost(ledger, KEYS[6], name, cost_of_day(ledger, name, levels_in(group.levels), cap_of(ledger, name)))
  end
end
set(KEYS[2], ARGV[3], ARGV[5])
return write_all({'OK'})
