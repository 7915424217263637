// Streams as engines, proxies and providers write them, in few words each. All of them must be provable.
import { CHATS, ODD_CHATS, TEXTS } from './chat.ts';
import type { Genuine } from './form.ts';
import { MESSAGE_STREAMS } from './messages.ts';
import { ODD_RESPONSES, RENAMED, STREAMED } from './responses.ts';

export { CONTRADICTIONS } from './responses.ts';

export const GENUINE: readonly Genuine[] = [...CHATS, ...TEXTS, ...STREAMED, ...RENAMED, ...MESSAGE_STREAMS];

/** Streams that no engine is known to write, and that the rules prove all the same. */
export const ODD: readonly Genuine[] = [...ODD_CHATS, ...ODD_RESPONSES];
