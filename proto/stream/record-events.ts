// The record of a stream of named events, in each form. Who verifies no such stream need not load it.
import type { EventRecord } from './events.ts';
import type { StreamForm } from './forms.ts';
import { MessageEvents } from './messages.ts';
import { ResponseEvents } from './responses.ts';

export function recordEvents(form: Exclude<StreamForm, 'completion'>): EventRecord {
  return form === 'response' ? new ResponseEvents() : new MessageEvents();
}
