-- Remove the reservations of queries over days on a date that no output topic has reported.    [decisions/0029]
-- KEYS  1 recovery, 2 ledger (of one domain and date), 3 total
-- ARGV  1 the token of the recovery in progress, 2 policy name, 3 the name that reserves the cost of a private list of cells:
--       that cost is spent, and stays
-- Returns {"OK"}; {"ended"} if that recovery is not in progress.
local name, prefix = ARGV[2], 'query:' .. ARGV[2] .. ':'
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then return {'ended'} end
local reserved = {}
for field, value in pairs(fields_of(KEYS[2])) do
  if value and string.sub(field, 1, #prefix) == prefix then reserved[string.sub(field, #prefix + 1)] = value end
end
for query, value in pairs(reserved) do
  local told, epsilon = get(KEYS[2], 'told:' .. name .. ':' .. query), string.match(value, 'x(%d+)$')
  local least = told and parse_integer(told, KEYS[2]) or 0
  if query ~= ARGV[3] then
    if least < places_of(KEYS[2], name, query) then set_places(KEYS[2], KEYS[3], name, query, least, epsilon or '') end
    if not told then set(KEYS[2], prefix .. query, false) end  -- the next release decides it again
  end
end
return write_all({'OK'})
