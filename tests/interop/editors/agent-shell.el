;; Asks Goose (its command is the test agent) in agent-shell, prints the shell, and leaves Emacs.
(require 'agent-shell)
(defvar done nil)
(defun wait-for (event)
  (with-timeout (60 (error "no %s" event))
    (while (not (memq event done))
      (accept-process-output nil 0.02))))
(let ((buffer (agent-shell-start :config (agent-shell-goose-make-agent-config))))
  (agent-shell-subscribe-to
   :shell-buffer buffer
   :on-event (lambda (event) (push (map-elt event :event) done)))
  (wait-for 'prompt-ready)
  (agent-shell-insert :text "say hello" :submit t :no-focus t :shell-buffer buffer)
  (wait-for 'turn-complete)
  (with-current-buffer buffer
    (princ (buffer-substring-no-properties (point-min) (point-max)))))
