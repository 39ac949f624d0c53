-- Asks the agent AGENT in the sidebar of avante, prints the answer, and leaves Neovim.
vim.cmd("edit notes.txt")
require("avante.api").switch_provider(vim.env.AGENT)
require("avante.api").ask({ question = "say hello" })

local function shown()
  local sidebar = require("avante").get()
  local result = sidebar and sidebar.containers and sidebar.containers.result
  local lines = result and vim.api.nvim_buf_get_lines(result.bufnr, 0, -1, false) or {}
  return table.concat(lines, "\n")
end
vim.wait(60000, function()
  return shown():find("[chain] ", 1, true) ~= nil
end, 20)
io.stdout:write(shown())
vim.cmd("qa!")
