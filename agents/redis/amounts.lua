-- Exact sums of 1e-9 epsilon. This part precedes each script that books charges, after staging.lua.
-- A double would round them from 9e6 epsilon on. An amount is {whole epsilons, 1e-9 of the rest}, exact below 4.5e15
-- epsilon: stream/policy/checks.py rejects a policy whose day could sum to more.
local PARTS, MOST = 1e9, 2^52
local Amount = {}

local function amount_of(epsilons, rest)
  local carried = math.floor(rest / PARTS)
  return setmetatable({epsilons + carried, rest - carried * PARTS}, Amount)
end

local ZERO = amount_of(0, 0)
local amounts = {['0'] = ZERO}  -- cache by digits: a commit parses the same few amounts many times

Amount.__add = function(a, b) return amount_of(a[1] + b[1], a[2] + b[2]) end
Amount.__sub = function(a, b) return amount_of(a[1] - b[1], a[2] - b[2]) end
Amount.__eq = function(a, b) return a[1] == b[1] and a[2] == b[2] end
Amount.__lt = function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end
-- Multiply an amount by an integer >= 0. Each product of the rest stays below 2^53.
Amount.__mul = function(a, times)
  if times < 2^20 then return amount_of(a[1] * times, a[2] * times) end
  return a * math.floor(times / 2^20) * (2^20 - 1) + a * math.floor(times / 2^20) + a * (times % 2^20)
end

-- Parse an amount from digits.
local function amount(digits, key)
  if amounts[digits] then return amounts[digits] end
  if digits == '' or string.find(digits, '%D') then
    reject('damaged', key)
    return ZERO
  end
  local epsilons, rest = 0, tonumber(digits)
  if #digits > 15 then epsilons, rest = tonumber(string.sub(digits, 1, -10)), tonumber(string.sub(digits, -9)) end
  if epsilons >= MOST then reject('overflow', key) end
  local found = amount_of(epsilons, rest)
  amounts[digits] = found
  return found
end

local function digits_of(exact)
  if exact[1] < 1e6 then return text(exact[1] * PARTS + exact[2]) end
  return string.format('%.0f%09.0f', exact[1], exact[2])
end

-- Return a stored amount; zero if there is none.
local function get_amount(key, field) return amount(get(key, field) or '0', key) end

-- Set a stored amount.
local function set_amount(key, field, value)
  if value < ZERO then reject('damaged', key) end
  if not (value[1] < MOST) then reject('overflow', key) end
  local digits = digits_of(value)
  amounts[digits] = value
  set(key, field, digits)
end

-- Add to a stored amount.
local function add_amount(key, field, more) set_amount(key, field, get_amount(key, field) + more) end
