-- Exact sums of 1e-9 epsilon: it stands before each script that books charges, behind staging.lua.
-- A double would round them from 9e6 epsilon on. An amount is {whole epsilons, 1e-9 of the rest}, exact below 4.5e15 epsilon:
-- stream/policy/checks.py refuses a policy whose day could sum to more.
local PARTS, MOST = 1e9, 2^52
local Amount = {}

local function amount_of(epsilons, rest)
  local carried = math.floor(rest / PARTS)
  return setmetatable({epsilons + carried, rest - carried * PARTS}, Amount)
end

local ZERO = amount_of(0, 0)
local amounts = {['0'] = ZERO}  -- by digits: a commit meets the same few again and again

Amount.__add = function(a, b) return amount_of(a[1] + b[1], a[2] + b[2]) end
Amount.__sub = function(a, b) return amount_of(a[1] - b[1], a[2] - b[2]) end
Amount.__eq = function(a, b) return a[1] == b[1] and a[2] == b[2] end
Amount.__lt = function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end
-- An amount times a whole number from 0 on. Each product of the rest stays below 2^53.
Amount.__mul = function(a, times)
  if times < 2^20 then return amount_of(a[1] * times, a[2] * times) end
  return a * math.floor(times / 2^20) * (2^20 - 1) + a * math.floor(times / 2^20) + a * (times % 2^20)
end

-- An amount as it is stored or given: digits.
local function amount(digits, key)
  if amounts[digits] then return amounts[digits] end
  if digits == '' or string.find(digits, '%D') then
    refuse('damaged', key)
    return ZERO
  end
  local epsilons, rest = 0, tonumber(digits)
  if #digits > 15 then epsilons, rest = tonumber(string.sub(digits, 1, -10)), tonumber(string.sub(digits, -9)) end
  if epsilons >= MOST then refuse('overflow', key) end
  local found = amount_of(epsilons, rest)
  amounts[digits] = found
  return found
end

local function digits_of(exact)
  if exact[1] < 1e6 then return text(exact[1] * PARTS + exact[2]) end
  return string.format('%.0f%09.0f', exact[1], exact[2])
end

-- A stored sum; zero if there is none.
local function sum(key, field) return amount(get(key, field) or '0', key) end

-- Set a stored sum.
local function settle_at(key, field, value)
  if value < ZERO then refuse('damaged', key) end
  if not (value[1] < MOST) then refuse('overflow', key) end
  local digits = digits_of(value)
  amounts[digits] = value
  set(key, field, digits)
end

-- Add to a stored sum.
local function grow(key, field, more) settle_at(key, field, sum(key, field) + more) end
