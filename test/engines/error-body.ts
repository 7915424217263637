// OpenAI's shape of an error, for what the gateway makes of an engine's.
import * as z from 'zod';

export const errorBodySchema = z.looseObject({
  error: z.looseObject({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }),
});
