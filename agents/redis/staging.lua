-- Reads and staged writes: a script that stands behind this part writes all of its changes or none.
-- It works everything out first and ends with `return written(ANSWER)`, which writes. If a key holds something else than
-- ours, or a number would not be exact, nothing is written and the answer is {word, key} instead.
-- `written` only sends commands that cannot fail: the type of each key was checked, and no number is added up by Redis.
local EXACT = 2^53  -- a double below it is exact
local SIZES = {hash = 'HLEN', set = 'SCARD', string = 'STRLEN'}  -- each fails on another type
local refusal
local is_ours, hashes, sets, strings, removed = {}, {}, {}, {}, {}
local hash_keys, set_keys, string_keys = {}, {}, {}  -- in the order of their first change

-- Refuse to write, with one word and the key at fault. The first reason counts.
local function refuse(word, key) refusal = refusal or {word, key} end

local function text(number) return string.format('%.0f', number) end

-- Run a command that reads a key; false if the key is of another type, which the first one finds out.
local function ask(command, key, ...)
  if is_ours[key] then return redis.call(command, key, ...) end
  if is_ours[key] == false then return false end
  local found = redis.pcall(command, key, ...)
  is_ours[key] = not (type(found) == 'table' and found.err)
  if is_ours[key] then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  refuse('damaged', key)
  return false
end

-- Whether a key is of a type, or free. Not by TYPE, which the users of a Redis with an ACL may not run.
local function is_a(kind, key) return is_ours[key] or (is_ours[key] == nil and ask(SIZES[kind], key) and true) end

local function hash_of(key)
  if not hashes[key] then hashes[key] = {known = {}, staged = {}, fields = {}} end
  return hashes[key]
end

-- A field of a hash with the changes so far; false if there is none.
local function get(key, field)
  local hash = hash_of(key)
  if hash.known[field] == nil then hash.known[field] = ask('HGET', key, field) end
  return hash.known[field]
end

-- Read many fields at once, for the `get` of each; 7,000 at most.
local function fetch(key, fields)
  local hash = hash_of(key)
  for i, value in ipairs(#fields > 0 and ask('HMGET', key, unpack(fields)) or {}) do
    if hash.known[fields[i]] == nil then hash.known[fields[i]] = value end
  end
end

-- All fields of a hash with the changes so far: field -> text; false where it is deleted.
local function fields_of(key)
  local hash = hash_of(key)
  if not hash.whole then
    local flat = ask('HGETALL', key) or {}
    for i = 1, #flat, 2 do
      if hash.known[flat[i]] == nil then hash.known[flat[i]] = flat[i + 1] end
    end
    hash.whole = true
  end
  return hash.known
end

-- Set a field of a hash; false deletes it.
local function set(key, field, value)
  local hash = hash_of(key)
  if not hash.staged[field] then
    if #hash.fields == 0 then hash_keys[#hash_keys + 1] = key end
    hash.staged[field] = true
    hash.fields[#hash.fields + 1] = field
  end
  hash.known[field] = value
end

-- A whole number as it is stored or given.
local function whole(digits, key)
  local number = string.match(digits, '^%-?%d+$') and tonumber(digits)
  if number and math.abs(number) < EXACT then return number end
  refuse(number and 'overflow' or 'damaged', key)
  return 0
end

local function number(key, field) return whole(get(key, field) or '0', key) end

-- Set a field to a whole number.
local function store(key, field, value)
  if not (math.abs(value) < EXACT) then refuse('overflow', key) end
  set(key, field, text(value))
end

-- Add to a field, and return the sum.
local function increase(key, field, more)
  local sum = number(key, field) + more
  store(key, field, sum)
  return sum
end

-- Add a member to a set.
local function join(key, member)
  if not is_a('set', key) then return end
  if not sets[key] then
    sets[key] = {}
    set_keys[#set_keys + 1] = key
  end
  sets[key][#sets[key] + 1] = member
end

-- A string; false if there is none.
local function read(key) return ask('GET', key) end

-- Set a string, whatever the key held.
local function put(key, value)
  if strings[key] == nil then string_keys[#string_keys + 1] = key end
  strings[key] = value
end

-- Delete a key, after everything else is written.
local function remove(key) removed[#removed + 1] = key end

-- Write all that is staged, and return the answer; or nothing, and return why.
local function written(answer)
  for _, key in ipairs(hash_keys) do is_a('hash', key) end
  if refusal then return refusal end
  local gone = {}
  for _, key in ipairs(hash_keys) do
    local hash, parts = hashes[key], {}
    for _, field in ipairs(hash.fields) do
      local value = hash.known[field]
      if value then
        parts[#parts + 1], parts[#parts + 2] = field, value
      else
        gone[#gone + 1] = {key, field}
      end
      if #parts >= 4000 then
        redis.call('HSET', key, unpack(parts))
        parts = {}
      end
    end
    if #parts > 0 then redis.call('HSET', key, unpack(parts)) end
  end
  for _, key in ipairs(set_keys) do redis.call('SADD', key, unpack(sets[key])) end
  for _, key in ipairs(string_keys) do redis.call('SET', key, strings[key]) end
  for _, one in ipairs(gone) do redis.call('HDEL', one[1], one[2]) end
  for _, key in ipairs(removed) do redis.call('DEL', key) end
  return answer
end
