-- Seal a policy's days: afterwards no record of them is committed or adopted.    [decisions/0028]
-- KEYS  1 recovery, 2 sealed, 3 adopted; ARGV  1 the recovery's token, 2 policy name, 3 the last date to seal, then
--       `topic/partition` and position of each end up to which all records were adopted
-- Returns 1, or 0 if this Redis is not recovered, or went back since: then nothing was written.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
for i = 4, #ARGV, 2 do
  local id, last = string.match(ARGV[i + 1], '^(.*):(%d+)$')
  local known, offset = string.match(redis.call('HGET', KEYS[3], ARGV[i]) or '', '^(.*):(%d+)$')
  if tonumber(last) > 0 and (known ~= id or tonumber(offset) < tonumber(last)) then return 0 end
end
local known = get(KEYS[2], ARGV[2])
if not known or known < ARGV[3] then set(KEYS[2], ARGV[2], ARGV[3]) end
return write_all(1)
