-- Apply changes of a ledger if all conditions hold, whole or not at all.
-- KEYS  the keys that are compared or changed; ARGV  1 MessagePack: steps, each: what, the key's number, and values of:
--       'same' field value ...; 'none' field ...; 'in' member ...; 'out' member ...; 'least' field number ...; 'set' field
--       value ...; 'gone' field ...; 'join' member ...; 'leave' member ...; 'add' field number ...; 'raise' field value ...;
--       'delete'. Key 0 is this server: 'run_id' and 'replid'.
-- Returns 'done'; 'stale' if a condition does not hold, or {'damaged' or 'overflow', key}: then nothing was written.
local EXACT, STEP = 2^53, 4000
local WRITES = {set = 'HSET', gone = 'HDEL', join = 'SADD', leave = 'SREM'}
local OF_SET = {join = true, leave = true, ['in'] = true, out = true}
local frees, writes, removes, checked = {}, {}, {}, {}

local function stored(key, field)
  if key > 0 then return redis.call('HGET', KEYS[key], field) end
  if field == 'run_id' then return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)') or ''
end

local function number(digits)
  local value = string.match(digits or '0', '^%d+$') and tonumber(digits or '0')
  return value and value < EXACT and value or nil
end

for _, step in ipairs(cmsgpack.unpack(ARGV[1])) do
  local what, key, values = step[1], step[2], step[3]
  if key > 0 and what ~= 'delete' and not checked[key] then
    checked[key] = true
    local held = redis.pcall(OF_SET[what] and 'SCARD' or 'HLEN', KEYS[key])
    if type(held) == 'table' then
      if not string.find(held.err, 'WRONGTYPE', 1, true) then error(held.err) end
      return {'damaged', KEYS[key]}
    end
  end
  if what == 'delete' then
    frees[#frees + 1] = {'UNLINK', KEYS[key]}
  elseif WRITES[what] then
    local list = (what == 'set' or what == 'join') and writes or removes
    for from = 1, #values, STEP do
      list[#list + 1] = {WRITES[what], KEYS[key], values, from, math.min(from + STEP - 1, #values)}
    end
  elseif OF_SET[what] then
    for _, member in ipairs(values) do
      if redis.call('SISMEMBER', KEYS[key], member) ~= (what == 'in' and 1 or 0) then return 'stale' end
    end
  elseif what == 'none' then
    for _, field in ipairs(values) do
      if stored(key, field) then return 'stale' end
    end
  else
    for i = 1, #values, 2 do
      local field, value, known = values[i], values[i + 1], stored(key, values[i])
      if what == 'same' then
        if known ~= value then return 'stale' end
      elseif what == 'raise' then
        if not known or #known < #value or (#known == #value and known < value) then
          writes[#writes + 1] = {'HSET', KEYS[key], values, i, i + 1}
        end
      else
        local before = number(known)
        if not before then return {'damaged', KEYS[key]} end
        if what == 'least' then
          if before < tonumber(value) then return 'stale' end
        else
          local after = before + tonumber(value)
          if after < 0 then return {'damaged', KEYS[key]} end
          if after >= EXACT then return {'overflow', KEYS[key]} end
          writes[#writes + 1] = {'HSET', KEYS[key], {field, string.format('%.0f', after)}, 1, 2}
        end
      end
    end
  end
end
-- A full Redis refuses a script whose first write needs memory, and no later one: so what frees whole keys comes first.
for _, free in ipairs(frees) do redis.call(unpack(free)) end
for _, list in ipairs({writes, removes}) do
  for _, write in ipairs(list) do
    redis.call(write[1], write[2], unpack(write[3], write[4], write[5]))
  end
end
return 'done'
