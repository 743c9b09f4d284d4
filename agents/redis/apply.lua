-- Apply changes of a ledger if all conditions hold, whole or not at all.
-- KEYS  the keys that are compared or changed; ARGV  1 MessagePack: steps, each: what, the key's number, whether it is a
--       set, and field -> value: 'equal' (the stored one), 'least' (digits: that number is stored, or a greater one),
--       'set', 'add' (a number), 'raise' (unless a greater one is stored), 'delete' (the key). A value false is none; a
--       member's is ''.
--       Key 0 is this server: 'run_id' and 'replid'.
-- Returns 'done'; 'stale' if a condition does not hold, or {'damaged' or 'overflow', key}: then nothing was written.
local EXACT, STEP = 2^53, 4000
local frees, writes, removes, checked = {}, {}, {}, {}

local function stored(key, field, is_set)
  if is_set then return redis.call('SISMEMBER', KEYS[key], field) == 1 and '' end
  if key > 0 then return redis.call('HGET', KEYS[key], field) end
  if field == 'run_id' then return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
end

local function number(digits)
  local value = string.match(digits or '0', '^%d+$') and tonumber(digits or '0')
  return value and value < EXACT and value or nil
end

for _, step in ipairs(cmsgpack.unpack(ARGV[1])) do
  local what, key, is_set, fields = unpack(step)
  if key > 0 and what ~= 'delete' and not checked[key] then
    checked[key] = true
    local held = redis.pcall(is_set and 'SCARD' or 'HLEN', KEYS[key])
    if type(held) == 'table' then
      if not string.find(held.err, 'WRONGTYPE', 1, true) then error(held.err) end
      return {'damaged', KEYS[key]}
    end
  end
  local kept, gone = {is_set and 'SADD' or 'HSET', KEYS[key]}, {is_set and 'SREM' or 'HDEL', KEYS[key]}
  if what == 'delete' then frees[#frees + 1] = KEYS[key] end
  for field, value in pairs(fields) do
    local known = what ~= 'set' and stored(key, field, is_set)
    if what == 'equal' then
      if known ~= value then return 'stale' end
    elseif what == 'set' then
      local list = value and kept or gone
      list[#list + 1] = field
      if value and not is_set then list[#list + 1] = value end
    elseif what == 'raise' then
      if not known or #known < #value or (#known == #value and known < value) then
        kept[#kept + 1], kept[#kept + 2] = field, value
      end
    else
      local before = number(known)
      if not before then return {'damaged', KEYS[key]} end
      if what == 'least' then
        if before < tonumber(value) then return 'stale' end
      else
        local after = before + value
        if after < 0 then return {'damaged', KEYS[key]} end
        if after >= EXACT then return {'overflow', KEYS[key]} end
        kept[#kept + 1], kept[#kept + 2] = field, string.format('%.0f', after)
      end
    end
  end
  writes[#writes + 1], removes[#removes + 1] = kept, gone
end
-- A full Redis refuses a script whose first write needs memory, and no later one: so what frees whole keys comes first.
for _, key in ipairs(frees) do redis.call('UNLINK', key) end
for _, list in ipairs({writes, removes}) do
  for _, write in ipairs(list) do
    for from = 3, #write, STEP do
      redis.call(write[1], write[2], unpack(write, from, math.min(from + STEP - 1, #write)))
    end
  end
end
return 'done'
