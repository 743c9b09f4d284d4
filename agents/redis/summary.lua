-- Read a day's ledger at one time.
-- KEYS  1 ledger, 2 total; ARGV 1 prefix of the keys of the policies' levels, up to the policy's name
-- Returns {ledger, total, then name and levels of each policy that has charged}
local found = {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
for i = 1, #found[1], 2 do
  local name = string.match(found[1][i], '^cost:(.*)')
  if name then
    found[#found + 1] = name
    found[#found + 1] = redis.call('HGETALL', ARGV[1] .. name)
  end
end
return found
