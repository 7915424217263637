//! Mozilla's Oblivious HTTP and binary HTTP as a program: each line of standard input is a call, as JSON, and each line of standard output
//! what came of it. Bytes are in hex.
use std::{
    cell::RefCell,
    collections::HashMap,
    io::{BufRead, Cursor, Result as IoResult, Write},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bhttp::{ControlData, FieldSection, Message, Mode, StatusCode, stream::AsyncReadMessage};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, executor::block_on};
use ohttp::{
    ClientRequest, KeyConfig, Server, SymmetricSuite,
    hpke::{Aead, Kdf, Kem},
};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
enum Call {
    /// Makes a key. Returns its document, and its number here.
    Key {
        key_id: u8,
        kem: u16,
    },
    /// Opens a request to a key of ours. Returns the message, and the request's number.
    OpenRequest {
        key: u32,
        request: String,
        #[serde(default)]
        size: usize,
    },
    /// Seals a response to a request that was opened.
    SealResponse {
        request: u32,
        message: String,
        size: usize,
    },
    /// Seals a request to the last key of a document that can be used. Returns what is sent, and the request's number.
    SealRequest {
        document: String,
        message: String,
        size: usize,
    },
    /// Opens the response to a request that was sealed.
    OpenResponse {
        request: u32,
        response: String,
        #[serde(default)]
        size: usize,
    },
    /// Reads a binary HTTP message: whole, or as it comes in parts of `size` bytes.
    Read {
        message: String,
        #[serde(default)]
        size: usize,
    },
    Write(HttpMessage),
}

#[derive(Serialize, Deserialize, Default)]
struct HttpMessage {
    /// Of a request: method, scheme, authority, path.
    request: Option<[String; 4]>,
    /// Of a response.
    status: Option<u16>,
    fields: Vec<(String, String)>,
    content: String,
    #[serde(default, skip_serializing)]
    known_length: bool,
}

#[derive(Serialize, Default)]
struct Outcome {
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<HttpMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

type Failure = Box<dyn std::error::Error>;
/// Seals a response in chunks of some bytes.
type Sealing = Box<dyn FnOnce(&[u8], usize) -> Result<Vec<u8>, Failure>>;
/// Opens a response that comes in parts of some bytes.
type Opening = Box<dyn Fn(Vec<u8>, usize) -> Result<Vec<u8>, Failure>>;

/// What is written to a stream that belongs to another object.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl AsyncWrite for Sink {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<IoResult<usize>> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Bytes that come in parts of `size`; 0: at once.
struct Source {
    bytes: Cursor<Vec<u8>>,
    size: usize,
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<IoResult<usize>> {
        // bhttp 0.8.0 waits after a short read without having asked to be woken.
        context.waker().wake_by_ref();
        let most = if self.size == 0 {
            buffer.len()
        } else {
            buffer.len().min(self.size)
        };
        Poll::Ready(std::io::Read::read(&mut self.bytes, &mut buffer[..most]))
    }
}

fn source(bytes: Vec<u8>, size: usize) -> Source {
    Source {
        bytes: Cursor::new(bytes),
        size,
    }
}

async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
    message: &[u8],
    size: usize,
) -> IoResult<()> {
    for part in message.chunks(size.max(1)) {
        writer.write_all(part).await?;
    }
    writer.close().await
}

#[derive(Default)]
struct State {
    keys: Vec<Server>,
    sealing: HashMap<u32, Sealing>,
    opening: HashMap<u32, Opening>,
    last: u32,
}

impl State {
    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn run(&mut self, call: Call) -> Result<Outcome, Failure> {
        match call {
            Call::Key { key_id, kem } => {
                let suites = vec![SymmetricSuite::new(Kdf::HkdfSha256, Aead::Aes128Gcm)];
                let server = Server::new(KeyConfig::new(key_id, Kem::try_from(kem)?, suites)?)?;
                let document = KeyConfig::encode_list(&[server.config()])?;
                self.keys.push(server);
                Ok(Outcome {
                    number: Some(u32::try_from(self.keys.len() - 1)?),
                    bytes: Some(hex::encode(document)),
                    ..Outcome::default()
                })
            }
            Call::OpenRequest { key, request, size } => {
                let server = self.keys[usize::try_from(key)?].clone();
                let mut opened = server.decapsulate_stream(source(hex::decode(request)?, size));
                let mut message = Vec::new();
                block_on(opened.read_to_end(&mut message))?;
                let sink = Sink::default();
                let response = opened.response(sink.clone())?;
                let number = self.next();
                self.sealing.insert(
                    number,
                    Box::new(move |message, size| {
                        block_on(write_all(response, message, size))?;
                        Ok(sink.0.take())
                    }),
                );
                Ok(Outcome {
                    number: Some(number),
                    bytes: Some(hex::encode(message)),
                    ..Outcome::default()
                })
            }
            Call::SealResponse {
                request,
                message,
                size,
            } => {
                let seal = self.sealing.remove(&request).ok_or("no such request")?;
                let bytes = seal(&hex::decode(message)?, size)?;
                Ok(Outcome {
                    bytes: Some(hex::encode(bytes)),
                    ..Outcome::default()
                })
            }
            Call::SealRequest {
                document,
                message,
                size,
            } => {
                let client = ClientRequest::from_encoded_config_list(&hex::decode(document)?)?;
                let sink = Sink::default();
                let mut request = client.encapsulate_stream(sink.clone())?;
                block_on(write_all(&mut request, &hex::decode(message)?, size))?;
                let bytes = sink.0.take();
                let number = self.next();
                self.opening.insert(
                    number,
                    Box::new(move |response, size| {
                        let mut opened = request.response(source(response, size))?;
                        let mut message = Vec::new();
                        block_on(opened.read_to_end(&mut message))?;
                        Ok(message)
                    }),
                );
                Ok(Outcome {
                    number: Some(number),
                    bytes: Some(hex::encode(bytes)),
                    ..Outcome::default()
                })
            }
            Call::OpenResponse {
                request,
                response,
                size,
            } => {
                let open = self.opening.get(&request).ok_or("no such request")?;
                let bytes = open(hex::decode(response)?, size)?;
                Ok(Outcome {
                    bytes: Some(hex::encode(bytes)),
                    ..Outcome::default()
                })
            }
            Call::Read { message, size } => {
                let bytes = hex::decode(message)?;
                let http = if size == 0 {
                    let message = Message::read_bhttp(&mut Cursor::new(&bytes[..]))?;
                    described(message.control(), message.header(), message.content())?
                } else {
                    block_on(read_as_it_comes(source(bytes, size)))?
                };
                Ok(Outcome {
                    http: Some(http),
                    ..Outcome::default()
                })
            }
            Call::Write(http) => {
                let mode = if http.known_length {
                    Mode::KnownLength
                } else {
                    Mode::IndeterminateLength
                };
                let mut message = match (http.request, http.status) {
                    (Some(parts), None) => {
                        let [method, scheme, authority, path] = parts.map(String::into_bytes);
                        Message::request(method, scheme, authority, path)
                    }
                    (None, Some(status)) => Message::response(StatusCode::try_from(status)?),
                    _ => return Err("a message is a request or a response".into()),
                };
                for (name, value) in http.fields {
                    message.put_header(name, value);
                }
                message.write_content(hex::decode(http.content)?);
                let mut bytes = Vec::new();
                message.write_bhttp(mode, &mut bytes)?;
                Ok(Outcome {
                    bytes: Some(hex::encode(bytes)),
                    ..Outcome::default()
                })
            }
        }
    }
}

async fn read_as_it_comes(source: Source) -> Result<HttpMessage, Failure> {
    let mut message = Message::async_read(source);
    let header = message.header().await?;
    let mut content = Vec::new();
    message.body()?.read_to_end(&mut content).await?;
    message.trailer().await?;
    described(header.control(), &header, &content)
}

fn described(
    control: &ControlData,
    fields: &FieldSection,
    content: &[u8],
) -> Result<HttpMessage, Failure> {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec());
    let request = if control.is_request() {
        Some([
            text(control.method())?,
            text(control.scheme())?,
            text(control.authority())?,
            text(control.path())?,
        ])
    } else {
        None
    };
    let fields = fields
        .iter()
        .map(|field| Ok((text(Some(field.name()))?, text(Some(field.value()))?)))
        .collect::<Result<_, Failure>>()?;
    let status = control.status().map(StatusCode::code);
    Ok(HttpMessage {
        request,
        status,
        fields,
        content: hex::encode(content),
        known_length: false,
    })
}

fn main() -> IoResult<()> {
    let mut state = State::default();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let outcome = serde_json::from_str(&line?)
            .map_err(Failure::from)
            .and_then(|call| state.run(call))
            .unwrap_or_else(|error| Outcome {
                error: Some(error.to_string()),
                ..Outcome::default()
            });
        writeln!(output, "{}", serde_json::to_string(&outcome)?)?;
        output.flush()?;
    }
    Ok(())
}
