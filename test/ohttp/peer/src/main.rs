// The other side of chunked Oblivious HTTP, by Mozilla's `ohttp`: messages in hex, one a line, on standard input and output.
//   client KEYS MESSAGE: writes the sealed request, reads the sealed response, writes the response
//   server x25519|hybrid: writes its keys, reads a sealed request, writes the request, reads a response, writes the sealed response
// What it refuses ends it with the reason on standard error.
use std::error::Error;
use std::io::{BufRead, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use ohttp::hpke::{Aead, Kdf, Kem};
use ohttp::{ClientRequest, KeyConfig, Server, SymmetricSuite};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A writer whose bytes can be read behind it.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl AsyncWrite for Written {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

fn write_line(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())?;
    Ok(out.flush()?)
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let text = text.trim();
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

fn read_line() -> Result<Vec<u8>> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    from_hex(&line)
}

/// Writes a message in two parts, so that it has chunks before the last one.
async fn write_parts<W: AsyncWrite + Unpin>(writer: &mut W, message: &[u8]) -> Result<()> {
    let (one, two) = message.split_at(message.len() / 2);
    for part in [one, two] {
        if !part.is_empty() {
            writer.write_all(part).await?;
        }
    }
    Ok(writer.close().await?)
}

async fn client(keys: &[u8], message: &[u8]) -> Result<()> {
    let written = Written::default();
    let mut request = ClientRequest::from_encoded_config_list(keys)?.encapsulate_stream(written.clone())?;
    write_parts(&mut request, message).await?;
    write_line(&written.bytes())?;
    let sealed = read_line()?;
    let mut opened = Vec::new();
    request.response(&sealed[..])?.read_to_end(&mut opened).await?;
    write_line(&opened)
}

async fn server(kem: &str) -> Result<()> {
    let kem = if kem == "hybrid" { Kem::XWing } else { Kem::X25519Sha256 };
    let config = KeyConfig::new(7, kem, vec![SymmetricSuite::new(Kdf::HkdfSha256, Aead::Aes128Gcm)])?;
    let server = Server::new(config)?;
    write_line(&KeyConfig::encode_list(&[server.config()])?)?;
    let sealed = read_line()?;
    let mut request = server.decapsulate_stream(&sealed[..]);
    let mut opened = Vec::new();
    request.read_to_end(&mut opened).await?;
    write_line(&opened)?;
    let message = read_line()?;
    let written = Written::default();
    write_parts(&mut request.response(written.clone())?, &message).await?;
    write_line(&written.bytes())
}

fn main() -> Result<()> {
    ohttp::init();
    let args: Vec<String> = std::env::args().collect();
    block_on(async {
        match args.get(1).map(String::as_str) {
            Some("client") => client(&from_hex(&args[2])?, &from_hex(&args[3])?).await,
            Some("server") => server(&args[2]).await,
            _ => Err("client KEYS MESSAGE, or server x25519|hybrid".into()),
        }
    })
}
