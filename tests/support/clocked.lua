-- What a test puts behind the header line of a script: a clock of its own, and expiries that go by it.
--
-- TIME is what `test:clock` holds (us). An expiry is kept in the hash `test:expiries` and never removes a key: a key past
-- its end must read as none, and the test deletes such keys or keeps them as it likes.
local redis = (function()
  local call, pcall = redis.call, redis.pcall
  local function clocked(through)
    return function(command, key, a, b, c, ...)
      if command == 'TIME' then
        local us = call('GET', 'test:clock')
        return { string.sub(us, 1, -7), string.format('%d', tonumber(string.sub(us, -6))) }
      elseif command == 'PEXPIRETIME' then
        if call('EXISTS', key) == 0 then return -2 end
        return tonumber(call('HGET', 'test:expiries', key) or -1)
      elseif command == 'PEXPIREAT' then
        if call('EXISTS', key) == 0 then return 0 end
        call('HSET', 'test:expiries', key, a)
        return 1
      elseif command == 'SET' then
        if b == 'PXAT' then
          call('HSET', 'test:expiries', key, c)
        elseif b ~= 'KEEPTTL' then
          error('SET without an expiry')
        end
        return call('SET', key, a)
      elseif c ~= nil then
        return through(command, key, a, b, c, ...)
      elseif b ~= nil then
        return through(command, key, a, b)
      elseif a ~= nil then
        return through(command, key, a)
      end
      return through(command, key)
    end
  end
  return { call = clocked(call), pcall = clocked(pcall) }
end)()
