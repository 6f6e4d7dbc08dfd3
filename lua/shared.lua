-- Pieces that several algorithms have in common; a line `$include NAME` in one of them stands for the piece.

--- limit, window, cost
-- The bounds are those of the configuration's hard ends.
if not (limit_$N >= 1 and limit_$N <= 1000000000 and window_$N >= 1 and window_$N <= 31622400000
    and cost_$N >= 1 and cost_$N <= 1000000000 and limit_$N % 1 + window_$N % 1 + cost_$N % 1 == 0) then
  return {-2, now_us, $N}
end

--- string
-- stored_$N: the string, or false where there is none; expires_$N: its expiry, which every state of ours has.
local stored_$N, expires_$N = redis.pcall('GET', KEYS[$N]), 0
if stored_$N then
  if stored_$N.err then -- nil of a string
    if find(stored_$N.err, '^WRONGTYPE') then return {-3, now_us, $N} end
    return stored_$N
  end
  expires_$N = call('PEXPIRETIME', KEYS[$N])
  if expires_$N == -1 then return {-4, now_us, $N} end
end

--- fits
-- How many requests fit the room of this limit; the narrowest limit rules.
local fits_$N = (room_$N - room_$N % cost_$N) / cost_$N
if fits_$N < admitted then admitted = fits_$N end

--- fits, shadow
-- A shadow limit narrows nothing.
local fits_$N = (room_$N - room_$N % cost_$N) / cost_$N
