//! An agent of protocol version 1 on the official Rust SDK. It says what it is told; the prompt
//! `permission` asks first and says what was chosen, `die` ends the process.

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest,
    NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest, PromptResponse,
    RequestPermissionOutcome, RequestPermissionRequest, SessionId, SessionNotification,
    SessionUpdate, StopReason, TextContent, ToolCallUpdate, ToolCallUpdateFields,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Result, Stdio};

fn say(client: &ConnectionTo<Client>, session: &SessionId, text: &str) -> Result<()> {
    let block = ContentBlock::Text(TextContent::new(text));
    let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(block));
    client.send_notification(SessionNotification::new(session.clone(), chunk))
}

async fn turn(
    prompt: PromptRequest,
    responder: Responder<PromptResponse>,
    client: ConnectionTo<Client>,
) -> Result<()> {
    let session = prompt.session_id;
    for block in prompt.prompt {
        let ContentBlock::Text(block) = block else {
            continue;
        };
        say(&client, &session, &format!("you said: {}", block.text))?;
        match block.text.as_str() {
            "die" => std::process::exit(3),
            "permission" => {
                let fields = ToolCallUpdateFields::new().title("Edit config");
                let call = ToolCallUpdate::new("call-1", fields);
                let yes = PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce);
                let asked = RequestPermissionRequest::new(session.clone(), call, vec![yes]);
                let answer = client.send_request(asked).block_task().await?;
                if let RequestPermissionOutcome::Selected(chosen) = answer.outcome {
                    say(&client, &session, &format!(", {}", chosen.option_id))?;
                }
            }
            _ => {}
        }
    }
    responder.respond(PromptResponse::new(StopReason::EndTurn))
}

#[tokio::main]
async fn main() -> Result<()> {
    Agent
        .v1()
        .on_receive_request(
            async move |asked: InitializeRequest, responder, _: ConnectionTo<Client>| {
                responder.respond(InitializeResponse::new(asked.protocol_version))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _: ConnectionTo<Client>| {
                responder.respond(NewSessionResponse::new("rust-session"))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |prompt: PromptRequest, responder, client: ConnectionTo<Client>| {
                client.spawn(turn(prompt, responder, client.clone()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
