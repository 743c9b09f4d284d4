-- Delete the records and costs of a policy's sealed day, and keep its summary.    [decisions/0028]
-- KEYS  1 sealed, 2 unsealed dates, 3 oldest, 4 releases, 5 published, 6 costs, 7 seen; ARGV  1 policy name, 2 date
-- Returns 1, or 0 if the day is not sealed: then nothing was deleted.
local sealed = redis.call('HGET', KEYS[1], ARGV[1])
if not sealed or ARGV[2] > sealed then return 0 end
redis.call('SISMEMBER', KEYS[2], ARGV[2])  -- fails on another type, before anything is deleted
local fields = redis.call('HKEYS', KEYS[3])
redis.call('UNLINK', KEYS[4], KEYS[5], KEYS[6], KEYS[7])
redis.call('SREM', KEYS[2], ARGV[2])
for _, field in ipairs(fields) do  -- includes days without a release, which nothing else deletes
  local date, name = string.match(field, ' (%S+) (%S+)$')
  if name == ARGV[1] and date <= sealed then redis.call('HDEL', KEYS[3], field) end
end
return 1
