-- Asks the agent AGENT in a chat of CodeCompanion, prints the chat, and leaves Neovim.
local function leave()
  io.stdout:write(table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"))
  vim.cmd("qa!")
end
vim.api.nvim_create_autocmd("User", {
  pattern = "CodeCompanionChatDone",
  callback = vim.schedule_wrap(leave),
})
vim.defer_fn(leave, 60000)
-- Typed, as by a user: CodeCompanion does not wait for the agent in the coroutine of a script.
vim.api.nvim_input(":CodeCompanionChat adapter=" .. vim.env.AGENT .. " say hello<CR>")
